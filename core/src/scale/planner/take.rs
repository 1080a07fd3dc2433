//! Scale-in: which machines are given back, and where their instances go.

mod place;

pub(super) use self::place::others;
use self::place::placed;
use super::explain::rows;
use super::storm::moves;
use super::{Planner, Refusal, Removal, TakeAsk};
use crate::route::rank::Lots;
use crate::scale::etp::{Reading, SinkRate, etp};
use crate::scale::fluid::EQUAL;
use crate::scale::machines::Placement;

/// Up to so many machines every choice is tried.
const ALL: usize = 8;

/// With more machines a choice of all is made by looking at so many vertices, edges and instances at most, all in all.
const MOST_LOOKS: u64 = 20_000_000;

/// Stela's scale-in: the machines with the least sum of ETP over their instances (path, every instance with the ETP of its
/// vertex). Their instances go to the others in turn, from the least sum on (elasticity.md section 1.6).
#[derive(Debug, Clone, Copy)]
pub struct EtpSum;

/// Machines by lot, from the seed; their instances go to the others in turn.
#[derive(Debug, Clone, Copy)]
pub struct Random;

impl Planner for EtpSum {
    fn name(&self) -> &'static str {
        "etp-sum"
    }

    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        let instances = ask.placement.instances();
        let congested = ask.congestion.find(ask.graph, &instances, &ask.rates);
        let shares = etp(ask.graph, &ask.rates, &congested, Reading::Path, SinkRate::Processed)
            .map_err(|none| Refusal(none.to_string()))?;
        let mut sums = vec![0.0; ask.placement.machines.len()];
        for (machines, share) in ask.placement.on.iter().zip(&shares) {
            for machine in machines {
                sums[*machine] += share;
            }
        }
        let ascending = |machines: &mut Vec<usize>| machines.sort_by(|a, b| sums[*a].total_cmp(&sums[*b]));
        let mut free = removable(ask)?;
        ascending(&mut free);
        free.truncate(ask.machines);
        let mut stay = others(ask, &free);
        ascending(&mut stay);
        let after = dealt(ask.placement, &free, &stay);
        let sum = free.iter().map(|machine| sums[*machine]).sum::<f64>() * 100.0;
        let why = format!("least ETP of all instances together, {sum:.0} %");
        Ok(removal(self.name(), ask, free, after, why))
    }
}

impl Planner for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        let mut free = removable(ask)?;
        let mut lots = Lots(ask.seed);
        for place in 0..ask.machines {
            let other = place + lots.below((free.len() - place) as u64) as usize;
            free.swap(place, other);
        }
        free.truncate(ask.machines);
        let after = dealt(ask.placement, &free, &others(ask, &free));
        Ok(removal(self.name(), ask, free, after, format!("drawn by lot, seed {}", ask.seed)))
    }
}

/// Each choice of machines is evaluated on the model, with their instances placed where they cost least (see [`place`]),
/// and the one with the highest throughput is taken; of equals the one that moves the fewest
/// instances. Up to 8 machines that is every choice; beyond, one machine after the other.
pub(super) fn best(ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
    let free = removable(ask)?;
    let mut record: Option<(f64, usize, Vec<usize>, Placement)> = None;
    let mut offer = |machines: &[usize], after: Placement| {
        let throughput = fluid(ask, &after);
        let moved = moves(ask.placement, &after).len();
        let better = record.as_ref().is_none_or(|(most, fewest, ..)| {
            throughput > most * (1.0 + EQUAL) || (throughput >= most * (1.0 - EQUAL) && moved < *fewest)
        });
        if better {
            record = Some((throughput, moved, machines.to_vec(), after));
        }
    };
    if ask.placement.machines.len() <= ALL {
        let choices = choices(&free, ask.machines);
        for machines in &choices {
            offer(machines, placed(ask, ask.placement, machines, choices.len()));
        }
    } else {
        bounded(ask, free.len())?;
        let mut machines: Vec<usize> = Vec::new();
        let mut after = ask.placement.clone();
        while machines.len() < ask.machines {
            let next = free.iter().filter(|machine| !machines.contains(machine)).map(|machine| {
                let with: Vec<usize> = machines.iter().copied().chain([*machine]).collect();
                let after = placed(ask, &after, &with, free.len() * ask.machines);
                (fluid(ask, &after), with, after)
            });
            // The first of equals.
            let best = next.reduce(|best, next| if next.0 > best.0 * (1.0 + EQUAL) { next } else { best });
            let Some((_, with, placed)) = best else { break };
            (machines, after) = (with, placed);
        }
        offer(&machines, after);
    }
    let Some((_, moved, machines, placement)) = record else {
        return Err(Refusal("no machine can be given back".into()));
    };
    // Chosen among many by the fluid, which is quick; what people are told is what is to be expected of the choice.
    let (before, after) = (expected(ask, ask.placement), expected(ask, &placement));
    let why = if after >= before * (1.0 - EQUAL) {
        let moves =
            if moved == 1 { "1 instance moves".to_owned() } else { format!("{moved} instances move") };
        format!("then the job still makes {} rows/s; {moves}", rows(after))
    } else {
        format!("then {} of {} rows/s are left, and no more with any other choice", rows(after), rows(before))
    };
    Ok(removal("best", ask, machines, placement, why))
}

/// Beyond [`ALL`] each machine that may go is looked at once for each that goes: with all that it and those before it have
/// on any of the others, beside the whole job.
///
/// # Errors
/// If that is more than [`MOST_LOOKS`].
fn bounded(ask: &TakeAsk<'_>, free: usize) -> Result<(), Refusal> {
    let all = ask.placement.machines.len() as u64;
    let instances = ask.placement.on.iter().map(Vec::len).sum::<usize>() as u64;
    let job = (ask.graph.len() + ask.graph.edges().len()) as u64 + instances;
    let looks = |machine: u64| {
        let moving = (instances * machine).div_ceil(all);
        (free as u64 + 1).saturating_sub(machine) * (job + moving * all.saturating_sub(machine))
    };
    let mut sum = 0_u64;
    let most = (1..=ask.machines as u64).take_while(|machine| {
        sum = sum.saturating_add(looks(*machine));
        sum <= MOST_LOOKS
    });
    let most = most.count();
    if most < ask.machines {
        let or =
            if most > 0 { format!("ask for at most {most} at a time, or for") } else { "ask for".to_owned() };
        return Err(Refusal(format!(
            "{} to be given back, of {all} with {instances} instances: that takes `best` too long to choose; {or} another \
             planner (`etp-sum`)",
            machines_are(ask.machines)
        )));
    }
    Ok(())
}

/// The machines that can be given back.
///
/// # Errors
/// If these are fewer than asked for, or none would be left.
pub(super) fn removable(ask: &TakeAsk<'_>) -> Result<Vec<usize>, Refusal> {
    let machines = &ask.placement.machines;
    let free: Vec<usize> = (0..machines.len()).filter(|machine| machines[*machine].kept.is_none()).collect();
    let asked = ask.machines;
    if asked == 0 {
        return Err(Refusal("0 machines are to be given back: ask for at least 1".into()));
    }
    if asked >= machines.len() {
        let all = machines.len();
        return Err(Refusal(format!(
            "{} to be given back, of {all}: at least 1 has to stay",
            machines_are(asked)
        )));
    }
    if asked > free.len() {
        let mut kept: Vec<(&str, Vec<&str>)> = Vec::new();
        for machine in machines {
            let Some(why) = machine.kept.as_deref() else { continue };
            match kept.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(&machine.name),
                None => kept.push((why, vec![&machine.name])),
            }
        }
        let kept: Vec<String> =
            kept.into_iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect();
        let can = free.len();
        return Err(Refusal(format!(
            "{} to be given back, and {can} can be: {}",
            machines_are(asked),
            kept.join(", ")
        )));
    }
    Ok(free)
}

fn machines_are(asked: usize) -> String {
    if asked == 1 { "1 machine is".to_owned() } else { format!("{asked} machines are") }
}

/// The instances of the machines that go, to the others in turn.
fn dealt(placement: &Placement, gone: &[usize], stay: &[usize]) -> Placement {
    let mut after = placement.clone();
    let mut turn = stay.iter().cycle();
    for machine in gone {
        for (vertex, instance) in placement.of(*machine) {
            if let Some(to) = turn.next() {
                after.on[vertex][instance] = *to;
            }
        }
    }
    after
}

/// Every choice of so many.
fn choices(from: &[usize], many: usize) -> Vec<Vec<usize>> {
    if many == 0 {
        return vec![Vec::new()];
    }
    let Some((first, rest)) = from.split_first() else { return Vec::new() };
    let with = choices(rest, many - 1).into_iter().map(|mut choice| {
        choice.insert(0, *first);
        choice
    });
    with.chain(choices(rest, many)).collect()
}

pub(super) fn removal(
    planner: &str,
    ask: &TakeAsk<'_>,
    machines: Vec<usize>,
    placement: Placement,
    why: String,
) -> Removal {
    Removal {
        planner: planner.to_owned(),
        machines,
        moves: moves(ask.placement, &placement),
        why,
        before: expected(ask, ask.placement),
        after: expected(ask, &placement),
        placement,
    }
}

/// What choices are told apart by.
fn fluid(ask: &TakeAsk<'_>, placement: &Placement) -> f64 {
    placement.steady(ask.graph, ask.engine).throughput
}

/// What a plan is told with, as one for more instances is.
fn expected(ask: &TakeAsk<'_>, placement: &Placement) -> f64 {
    placement.expected(ask.graph, ask.engine).throughput
}

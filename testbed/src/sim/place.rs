//! Where the instances of a simulation go.

use super::SimError;
use super::config::Config;
use super::world::World;

/// The container of each instance: T-Heron, application by application.
pub(super) fn place(config: &Config, world: &World) -> Result<Vec<usize>, SimError> {
    let n = world.instances.len();
    let k = world.costs.len();
    let cap = n.div_ceil(k) + 1;
    let mut used = vec![0usize; k];
    let mut at: Vec<Option<usize>> = vec![None; n];
    let mut base = 0;
    for app in &config.apps {
        let rates = app.rates();
        let count = app.components.len();
        let flow = |a: usize, b: usize| -> f64 {
            let ca = &world.components[base + a];
            let cb = &world.components[base + b];
            let per = |f: usize, t: usize| {
                if ca.successors.contains(&(base + b)) && f == a {
                    app.emitted(f, rates[f]) / (ca.instances.len() * cb.instances.len()) as f64
                } else if cb.successors.contains(&(base + a)) {
                    app.emitted(t, rates[t]) / (ca.instances.len() * cb.instances.len()) as f64
                } else {
                    0.0
                }
            };
            per(a, b)
        };
        let mut order: Vec<(f64, usize, usize)> = Vec::new();
        for c in 0..count {
            for i in world.components[base + c].instances.clone() {
                let total: f64 =
                    (0..count).map(|o| flow(c, o) * world.components[base + o].instances.len() as f64).sum();
                order.push((total, i, c));
            }
        }
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, i, c) in order {
            let weight = |k: usize| -> f64 {
                (0..count)
                    .map(|o| {
                        world.components[base + o]
                            .instances
                            .clone()
                            .filter(|j| at[*j].is_some_and(|x| x != k))
                            .count() as f64
                            * flow(c, o)
                    })
                    .sum()
            };
            let best = (0..k)
                .filter(|k| used[*k] < cap)
                .min_by(|x, y| weight(*x).total_cmp(&weight(*y)).then(used[*x].cmp(&used[*y])));
            let best = best.ok_or_else(|| SimError::Config("no room".into()))?;
            at[i] = Some(best);
            used[best] += 1;
        }
        base += count;
    }
    Ok(at.into_iter().map(|x| x.unwrap_or(0)).collect())
}

//! Senders that join an input while its instance runs.

use super::held::Holding;
use super::{Channel, Inbox, State, Upstream};
use crate::exchange::credit::FIRST_WINDOW;
use crate::exchange::mark::{Item, Mark};
use crate::sync::lock;

impl Inbox {
    /// Its instance joins a run: its first windows are small, see [`FIRST_WINDOW`].
    pub(crate) fn begin_small(&self) {
        for channel in lock(&self.state).channels.iter_mut().filter(|channel| !channel.grows()) {
            (channel.limit, channel.window) = (FIRST_WINDOW, FIRST_WINDOW);
        }
    }

    /// A sender joins an input. Until its first watermark comes it stands where the instance stands now, and holds
    /// that: it is not idle. Gives the number of its channel.
    ///
    /// # Errors
    /// A sentence, if the input has ended.
    pub(crate) fn join(&self, input: usize, upstream: Upstream) -> Result<usize, String> {
        let mut state = lock(&self.state);
        state.may_join(input)?;
        let mut channel = Channel::new(input, upstream);
        channel.standing.watermark = state.least.watermark();
        if state.inputs[input].grows {
            channel.let_grow();
        }
        // A place that a plan has left which was given up, if there is one.
        let free = |of: &Channel| of.input == input && of.left && of.ended && of.queue.is_empty();
        let number = state.channels.iter().position(free).unwrap_or(state.channels.len());
        match state.channels.get_mut(number) {
            Some(place) => *place = channel,
            None => state.channels.push(channel),
        }
        // It may be that all others are idle.
        state.recheck = true;
        drop(state);
        self.nudge();
        Ok(number)
    }

    /// The senders of a channel have ended, or are about to, and others take their place: the end of the former does
    /// not end the channel, whenever it comes.
    ///
    /// # Errors
    /// A sentence, if its input has ended.
    pub(crate) fn reopen(&self, channel: usize) -> Result<(), String> {
        let mut state = lock(&self.state);
        let input = state.channels[channel].input;
        state.may_join(input)?;
        let now = state.least.watermark();
        let channel = &mut state.channels[channel];
        channel.opens += 1;
        if std::mem::replace(&mut channel.ended, false) {
            // Those who ended have nothing older to give any more.
            channel.holding = Holding::default();
        }
        channel.standing.idle = false;
        channel.standing.watermark = channel.standing.watermark.max(now);
        state.recheck = true;
        drop(state);
        self.nudge();
        Ok(())
    }

    /// Those who were to send on a channel do not come.
    pub(crate) fn leave(&self, channel: usize) {
        self.push(channel, Item::Mark(Mark::End));
    }
}

impl Inbox {
    /// The same of a channel that had been made for them: another one may have its place.
    pub(crate) fn leave_for_good(&self, channel: usize) {
        lock(&self.state).channels[channel].left = true;
        self.leave(channel);
    }
}

impl State {
    fn may_join(&self, input: usize) -> Result<(), String> {
        if self.ended || self.closed || self.inputs.get(input).is_none_or(|input| input.ended) {
            return Err("all that it reads has come to its end".to_owned());
        }
        Ok(())
    }
}

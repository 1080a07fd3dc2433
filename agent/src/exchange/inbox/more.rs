//! Senders that join an input while its instance runs.

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
        state.channels.push(channel);
        // It may be that all others are idle.
        state.recheck = true;
        let number = state.channels.len() - 1;
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
        channel.ended = false;
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

impl State {
    fn may_join(&self, input: usize) -> Result<(), String> {
        if self.ended || self.closed || self.inputs.get(input).is_none_or(|input| input.ended) {
            return Err("all that it reads has come to its end".to_owned());
        }
        Ok(())
    }
}

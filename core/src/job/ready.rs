//! All that a run asks of a job, in one list of faults.

use super::model::Job;
use crate::fault::Fault;
use crate::plan::plan;

impl Job {
    /// Whether the job can run: what it is made of, its plan, and `types`, the faults of its expressions.
    /// Gives what its file says in vain, options and stages that have no effect, and what may cost rows.
    ///
    /// # Errors
    /// Every fault that can be found together, in file order.
    pub fn ready(&self, types: impl IntoIterator<Item = Fault>) -> Result<Vec<Fault>, Vec<Fault>> {
        let mut faults = self.runnable().err().unwrap_or_default();
        let planned = plan(self);
        // What was said of a place once is not said again by the next check.
        let later = planned.as_ref().err().map(|error| error.fault.clone()).into_iter().chain(types);
        for fault in later {
            if !faults.iter().any(|known| known.at == fault.at) {
                faults.push(fault);
            }
        }
        if !faults.is_empty() {
            faults.sort_by_key(|fault| fault.at);
            return Err(faults);
        }
        let notes = planned.map(|dag| dag.notes).unwrap_or_default();
        let told = notes.into_iter().filter(|note| note.warns);
        let mut warnings = self.remarks();
        warnings.extend(told.map(|note| Fault::new(note.text.at, note.text.value)));
        warnings.sort_by_key(|warning| warning.at);
        Ok(warnings)
    }
}

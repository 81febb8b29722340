//! Places that access memory of a device. A driver that keeps using one mapping would otherwise get a report
//! for each of them.

use super::NAME;
use crate::checker::{Cx, Draft, Site};
use crate::machine::State;
use crate::stacks::StackId;
use rustc_hash::FxHashMap;

/// Most places that are reported for what one call maps.
const MAX_PLACES: usize = 4;
/// Most mapping calls that are known at a time.
const MAX_CALLS: usize = 1 << 12;

/// The innermost address of the driver in a stack; 0 where the driver is not in it.
fn place_of(state: &State, stack: &[u64]) -> u64 {
    stack.iter().copied().find(|&at| state.modules.contains(at)).unwrap_or(0)
}

/// The reported places, by kind and by the mapping call: the place and the number of its finding.
#[derive(Debug, Default)]
pub(super) struct Told(FxHashMap<(&'static str, u64), Vec<(u64, usize)>>);

impl Told {
    /// Reports an access from a place to memory that was mapped at another place. Where there are many
    /// places, the last one counts for the others.
    pub fn tell(
        &mut self,
        cx: &mut Cx<'_>,
        kind: &'static str,
        place: Site,
        mapped: StackId,
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        let state = cx.state;
        let stack = cx.stack(place);
        let at = place_of(state, &stack.near);
        if self.0.len() >= MAX_CALLS {
            self.0.clear();
        }
        let told = self.0.entry((kind, place_of(state, state.stacks.get(mapped)))).or_default();
        // A retracted finding does not count.
        told.retain(|&(_, finding)| cx.reports.get_mut(finding).is_some_and(|f| f.count > 0));
        let known = told.iter().find(|t| t.0 == at).or(told.get(MAX_PLACES - 1)).map(|t| t.1);
        if let Some(finding) = known {
            if let Some(f) = cx.reports.get_mut(finding) {
                f.count += 1;
            }
            return known;
        }
        let last = told.len() + 1 == MAX_PLACES;
        let finding = cx.report_stack(NAME, kind, &stack, || {
            let mut draft = draft();
            if last {
                draft.notes.push("more places that touch this mapping are counted here".to_owned());
            }
            draft
        })?;
        told.push((at, finding));
        Some(finding)
    }

    /// Forgets all places: addresses belong to other code from now on.
    pub fn renamed(&mut self) {
        self.0.clear();
    }
}

//! DataCollider: the tracer holds accesses picked by chance. Any other access of the driver to the same bytes
//! meanwhile, where one of both is a write, is a data race that has happened. The tracer holds and watches;
//! this checker only reports.

use crate::checker::{Checker, Cx, Draft, Site};
use crate::checkers::names;
use crate::stacks::CallTrace;
use guardrail_finding::{ContextInfo, OtherAccess};
use guardrail_trace::meet::{Meet, MeetOutcome, MeetSide};

const NAME: &str = "datacollider";

/// The checker; it keeps nothing between events.
#[derive(Debug, Default)]
pub struct DataCollider;

impl Checker for DataCollider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs_loads(&self) -> bool {
        false
    }

    fn needs_stores(&self) -> bool {
        false
    }

    fn met(&mut self, cx: &mut Cx<'_>, meet: &Meet, held: &CallTrace, by: &ContextInfo) {
        // An access that was held for a known pair of instructions is reported elsewhere.
        if meet.outcome != MeetOutcome::Met || meet.pair.is_some() {
            return;
        }
        let mut stack = cx.stack(Site::Insn(meet.other.pc));
        if stack.near.is_empty() {
            stack.near.push(meet.other.pc);
        }
        // The same two places are one race, no matter which access was held.
        let (pc, other) = (meet.held.pc, meet.other.pc);
        let key = [pc.min(other), pc.max(other)];
        let frames = cx.state.whole(held);
        cx.report_as(NAME, "data-race", &stack, &key, || {
            let place =
                frames.first().map_or_else(|| "?".to_owned(), |f| format!("{}+{:#x}", f.function, f.offset));
            let message = format!(
                "data race: a {} came while the {} by {place} was about to be made",
                described(&meet.other),
                described(&meet.held)
            );
            let access = |side: &MeetSide| names::access(side.store, side.address, u64::from(side.size));
            let other =
                OtherAccess { stack: frames.clone(), context: by.clone(), access: Some(access(&meet.held)) };
            let mut notes = Vec::new();
            if let [Some(before), Some(after), _] = meet.values {
                notes
                    .push(format!("The value was {before:#x} when the access was held and {after:#x} then."));
            }
            Draft { access: Some(access(&meet.other)), other: Some(other), notes, ..Draft::error(message) }
        });
    }
}

fn described(side: &MeetSide) -> String {
    format!("{}-byte {}", side.size, names::access_word(side.store))
}

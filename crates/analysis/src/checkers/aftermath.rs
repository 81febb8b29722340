//! Aftermath: where the accesses of a race have met, notes that their order was forced. Where the order lost
//! what one side wrote, or left bytes of both, it notes the driver's next read of these bytes.
//!
//! Only a run that holds the accesses of known races has such meetings; there it supplements other checkers.

use crate::checker::{Checker, Cx, Draft, Site};
use crate::checkers::names;
use crate::stacks::CallTrace;
use crate::value_flow::{InsnCtx, Value};
use guardrail_finding::{ContextInfo, Severity};
use guardrail_trace::event::Access;
use guardrail_trace::meet::{Meet, MeetOutcome};

/// The name of the checker, which no list of tools shows.
pub const NAME: &str = "aftermath";
/// The kind of the note that the order was forced.
pub const FORCED: &str = "order-forced";
/// The kind of a read after a write was lost.
pub const LOST: &str = "lost-value";
/// The kind of a read of bytes that two writes have left.
pub const TORN: &str = "torn-value";

/// The checker; it watches the bytes of the last meeting.
#[derive(Debug, Default)]
pub struct Aftermath {
    watched: Option<Watched>,
}

/// Bytes that both sides of a race have written.
#[derive(Clone, Copy, Debug)]
struct Watched {
    from: u64,
    len: u64,
    kind: &'static str,
    /// Address of the instruction that was held.
    held: u64,
    /// True once the held instruction was seen to write, without having read what the other wrote.
    overwritten: bool,
    lost: u64,
    left: u64,
}

impl Watched {
    fn touches(&self, access: Access) -> bool {
        let end = access.addr.saturating_add(u64::from(access.size));
        access.addr < self.from.saturating_add(self.len) && self.from < end
    }
}

impl Checker for Aftermath {
    fn name(&self) -> &'static str {
        NAME
    }

    fn met(&mut self, cx: &mut Cx<'_>, meet: &Meet, held: &CallTrace, _by: &ContextInfo) {
        let Some(pair) = meet.pair else { return };
        match meet.outcome {
            MeetOutcome::Met => {
                self.watched = None;
                cx.report_as(NAME, FORCED, held, &[u64::from(pair)], || Draft {
                    severity: Severity::Note,
                    ..Draft::error("the order of a race was forced".to_owned())
                });
            }
            MeetOutcome::Ran => self.watched = lost(meet),
            _ => {}
        }
    }

    fn load(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        let Some(watched) = self.watched.filter(|watched| watched.overwritten && watched.touches(access))
        else {
            return;
        };
        self.watched = None;
        cx.report(NAME, watched.kind, Site::Insn(insn.addr), || Draft {
            access: Some(names::access(false, access.addr, u64::from(access.size))),
            ..Draft::error(watched.message())
        });
    }

    fn store(&mut self, _cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, _value: Value) {
        let Some(watched) = &mut self.watched else { return };
        if !watched.touches(access) {
            return;
        }
        // The held write follows the record of the meeting. An update has read what the other side wrote,
        // and later writes replace what was left.
        match watched.overwritten || insn.addr != watched.held || insn.access.updates {
            true => self.watched = None,
            false => watched.overwritten = true,
        }
    }
}

impl Watched {
    fn message(&self) -> String {
        let (lost, left) = (self.lost, self.left);
        match self.kind {
            TORN => {
                format!("the driver reads {left:#x}, which is in part of one write and in part of another")
            }
            _ => format!("the driver reads {left:#x}, and the write of {lost:#x} by the other side is lost"),
        }
    }
}

/// What to watch after a meeting; `None` where no write was lost.
fn lost(meet: &Meet) -> Option<Watched> {
    let [Some(before), Some(between), Some(after)] = meet.values else { return None };
    let (held, other) = (&meet.held, &meet.other);
    if !(held.store && other.store) || before == between || between == after {
        return None;
    }
    let (from, len) = held.overlap(other);
    let same = (held.address, held.size) == (other.address, other.size);
    let kind = if same { LOST } else { TORN };
    Some(Watched { from, len, kind, held: held.pc, overwritten: false, lost: between, left: after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::meet::MeetSide;

    fn meet(values: [u64; 3]) -> Meet {
        let side = MeetSide { pc: 1, address: 0x1000, size: 4, store: true, ..MeetSide::default() };
        Meet {
            outcome: MeetOutcome::Ran,
            pair: Some(0),
            held: side,
            other: MeetSide { pc: 2, ..side },
            values: values.map(Some),
            spins: 0,
            nanos: 0,
            came: [0; 2],
            arrivals: [0; 2],
        }
    }

    #[test]
    fn a_write_is_lost_where_another_replaces_it_at_once() {
        let kind = |meet: &Meet| lost(meet).map(|watched| watched.kind);
        assert_eq!(kind(&meet([1, 2, 0])), Some(LOST));
        assert_eq!(kind(&meet([1, 1, 0])), None, "the other side changed nothing");
        assert_eq!(kind(&meet([1, 2, 2])), None, "nothing is lost");
        let mut read = meet([1, 2, 0]);
        read.held.store = false;
        assert_eq!(kind(&read), None);
        let mut half = meet([1, 2, 0]);
        half.other.size = 2;
        assert_eq!(kind(&half), Some(TORN));
    }
}

//! Judges accesses that left the object that their pointer came from, and hit another one.

use super::{DmCheck, NAME, Touch, text};
use crate::checker::{Cx, Draft, Site};
use crate::checkers::names;
use crate::machine::Out;
use crate::provenance::Stray;
use crate::value_flow::{Reach, Regs};
use guardrail_knowledge::effect::{Class, Ptr};

impl DmCheck {
    /// Reports an access that left the object that its pointer came from.
    #[cold]
    pub(super) fn astray(&self, cx: &mut Cx<'_>, reach: &Reach, stray: Stray, place: Site) {
        let touch = Touch { addr: reach.addr, len: reach.len, store: reach.store, place };
        let state = cx.state;
        match stray {
            Stray::Reused { old, .. } if self.leaves_dma && old.class == Class::Dma => {}
            Stray::Reused { old, new } => {
                let kind = "use-after-free";
                let _ = cx.report(NAME, kind, place, || Draft {
                    message: text::access(kind, touch, &old),
                    related: vec![names::related(state, "allocated again", new.allocated)],
                    notes: vec![format!(
                        "the pointer came from the freed object; its memory now belongs to {}",
                        text::object(&new)
                    )],
                    object: Some(old),
                    shadow: Some(reach.addr),
                    ..Draft::default()
                });
            }
            // The end of a range that begins in an object is judged without its pointer.
            Stray::Beside { at, .. } if reach.range && at > reach.addr => {}
            Stray::Beside { from, to, at } => {
                let kind = "out-of-bounds";
                let _ = cx.report(NAME, kind, place, || Draft {
                    message: text::access(kind, touch, &from),
                    related: to
                        .iter()
                        .map(|to| names::related(state, "neighbor allocated", to.allocated))
                        .collect(),
                    notes: vec![match &to {
                        Some(to) => format!(
                            "the pointer came from this object; the access is to offset {} of {} beside it",
                            at - to.start,
                            text::object(to)
                        ),
                        None => {
                            "the pointer came from this object; no other object is known there".to_owned()
                        }
                    }],
                    object: Some(from),
                    shadow: Some(at),
                    ..Draft::default()
                });
            }
        }
    }

    /// Judges what a kernel function accesses through a pointer that the driver passes.
    pub(super) fn judge_pointer(
        &self,
        cx: &mut Cx<'_>,
        (out, regs): (&Out, &Regs),
        ptr: Ptr,
        len: u64,
        store: bool,
    ) {
        let Ptr::Arg(arg) = ptr else { return };
        let Some(pointer) = regs.pointer(super::register_of(arg)) else { return };
        let addr = cx.state.pointer(ptr, &out.args);
        if len == 0 || pointer.value.map_or(!pointer.certain, |value| value != addr) {
            return;
        }
        let reach = Reach { addr, len, store, range: true, pointer };
        if let Some(stray) = cx.definedness.stray(cx.state, &reach) {
            self.astray(cx, &reach, stray, Site::Call);
        }
    }
}

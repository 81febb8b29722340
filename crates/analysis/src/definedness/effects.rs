//! What kernel functions that the driver calls do to the definedness of its memory.

use super::Definedness;
use crate::machine::{Context, Out, State, USER_END};
use guardrail_knowledge::effect::{Direction, Effect, Len, Ptr};

/// Bytes that may lose their pointers where a call writes and nothing says how much.
const UNKNOWN_EXTENT: u64 = 4096;

impl Definedness {
    /// The driver calls a kernel function.
    pub(crate) fn called(&mut self, state: &State, context: Option<&Context>, out: &Out) {
        if !self.on {
            return;
        }
        for effect in out.effects() {
            let pointer = |ptr: Ptr| state.pointer(ptr, &out.args);
            let (at, len, unit) = match *effect {
                Effect::Define { ptr, len } | Effect::ToUser { src: ptr, len } => (pointer(ptr), len, 1),
                Effect::ToDevice { src, len, unit } => (pointer(src), len, u64::from(unit)),
                Effect::Copy { src, len, .. } => (pointer(src), len, 1),
                _ => continue,
            };
            let Some(n) = state.extent(context, out, len, at) else {
                // Definedness is left as it is where nothing says how much is written; pointers are not.
                self.provenance.forget(at, UNKNOWN_EXTENT);
                continue;
            };
            match *effect {
                Effect::Copy { dst, .. } if at >= USER_END && pointer(dst) >= USER_END => {
                    self.provenance.forget(pointer(dst), n);
                    self.shadow.copy(pointer(dst), at, n);
                }
                Effect::Copy { dst, .. } => self.define(pointer(dst), n),
                _ => self.define(at, n.saturating_mul(unit)),
            }
        }
    }

    /// A kernel function that the driver called has returned.
    pub(crate) fn returned(&mut self, state: &State, context: Option<&Context>, out: &Out, result: u64) {
        if !self.on {
            return;
        }
        for effect in out.effects() {
            let (ptr, n) = match *effect {
                Effect::Define { ptr, len: Len::Result { extra, bound } } => {
                    let bound = bound.and_then(|i| out.args.get(usize::from(i)).copied());
                    let n = u64::try_from(result as i32).map(|n| n.saturating_add(extra));
                    (ptr, n.ok().map(|n| n.min(bound.unwrap_or(u64::MAX))))
                }
                Effect::DmaMap { ptr, len, direction } if !is_to_device(out, direction) => {
                    (ptr, state.extent(context, out, len, state.pointer(ptr, &out.args)))
                }
                _ => continue,
            };
            self.define(state.pointer(ptr, &out.args), n.unwrap_or(0));
        }
    }
}

/// Whether the device only reads what is mapped.
pub(crate) fn is_to_device(out: &Out, direction: Direction) -> bool {
    matches!(direction, Direction::Arg(i) if out.args.get(usize::from(i)).is_some_and(|d| *d as u32 == 1))
}

//! Text for DMCheck's messages, in the style of KASAN.

use super::Touch;
pub(super) use crate::checkers::names::bytes;
use crate::definedness::Shadow;
use crate::machine::{Object, State};
use crate::value_flow::Origin;
use guardrail_finding::OriginInfo;
use guardrail_knowledge::effect::Class;
use rustc_hash::FxHashMap;

/// Most origins that are distinguished.
const MAX_ORIGINS: usize = 1 << 18;

/// Where undefined values come from, by number.
#[derive(Debug, Default)]
pub(super) struct Origins {
    table: Vec<Source>,
    ids: FxHashMap<Source, Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Object { stack: crate::stacks::StackId, size: u64, class: Class },
    Frame { pc: u64 },
}

impl Origins {
    fn id(&mut self, source: Source) -> Origin {
        if let Some(&id) = self.ids.get(&source) {
            return id;
        }
        if self.table.len() >= MAX_ORIGINS {
            return 0;
        }
        self.table.push(source);
        let id = self.table.len() as Origin;
        self.ids.insert(source, id);
        id
    }

    pub fn object(&mut self, object: &Object) -> Origin {
        self.id(Source::Object { stack: object.allocated, size: object.size, class: object.class })
    }

    /// The origin of the stack frame that the instruction at `pc` made room for.
    pub fn frame(&mut self, pc: u64) -> Origin {
        self.id(Source::Frame { pc })
    }

    pub fn describe(&self, state: &State, origin: Origin) -> (Option<OriginInfo>, Option<Object>) {
        let source = (origin as usize).checked_sub(1).and_then(|i| self.table.get(i));
        let info = source.map(|source| match *source {
            Source::Object { stack, size, class } => OriginInfo {
                description: format!("a {size}-byte {} object", class.name()),
                stack: state.frames(state.stacks.get(stack)),
            },
            Source::Frame { pc } => {
                let frame = state.frame(pc, false);
                OriginInfo {
                    description: format!("the stack frame of {}", frame.function),
                    stack: vec![frame],
                }
            }
        });
        (info, None)
    }
}

pub(super) fn noun(store: bool) -> &'static str {
    if store { "write" } else { "read" }
}

pub(super) fn verb(touch: Touch) -> String {
    format!("{} of {}", noun(touch.store), bytes(touch.len))
}

pub(super) fn object(object: &Object) -> String {
    format!("a {}-byte {} object", object.size, object.class.name())
}

pub(super) fn article(noun: &str) -> String {
    format!("a {noun}")
}

pub(super) fn half(addr: u64) -> &'static str {
    if addr >> 47 == 0x1_ffff { "kernel" } else { "non-canonical" }
}

pub(super) fn access(kind: &str, touch: Touch, of: &Object) -> String {
    let place = if touch.addr >= of.start {
        format!("at offset {}", touch.addr - of.start)
    } else {
        format!("{} before the start", bytes(of.start - touch.addr))
    };
    format!("{kind} {} of {} {place} of {}", noun(touch.store), bytes(touch.len), object(of))
}

/// A dump of the bytes around `addr`, like KASAN's memory state. `00` may be accessed, `fb` is freed, `fc`
/// lies beyond an object, `uu` is undefined.
pub(super) fn dump(shadow: &mut Shadow, state: &State, addr: u64) -> Vec<String> {
    let first = (addr & !15).saturating_sub(32);
    (0..5u64)
        .map(|row| first.saturating_add(row * 16))
        .map(|row| {
            let mark = if row == addr & !15 { ">" } else { " " };
            let cells = (0..16).map(|i| {
                let at = row.saturating_add(i);
                let code = if shadow.is_restricted(at, 1) {
                    match state.objects.at(at) {
                        Some((_, o)) if !o.is_live() => "fb",
                        _ => "fc",
                    }
                } else if shadow.load(at, 1).undef != 0 {
                    "uu"
                } else {
                    "00"
                };
                if at == addr { format!("[{code}]") } else { format!(" {code} ") }
            });
            format!("{mark}{row:#018x}:{}", cells.collect::<String>())
        })
        .collect()
}

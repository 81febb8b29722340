//! Where undefined values are made.

use crate::machine::{Object, State};
use crate::stacks::StackId;
use crate::value_flow::Origin;
use guardrail_finding::OriginInfo;
use guardrail_knowledge::effect::Class;
use rustc_hash::FxHashMap;

/// Most origins that are distinguished.
const MAX_ORIGINS: usize = 1 << 18;

/// Where undefined values were made, by number.
#[derive(Debug, Default)]
pub struct Origins {
    table: Vec<Source>,
    ids: FxHashMap<Source, Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Object { stack: StackId, size: u64, class: Class },
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

    pub(super) fn object(&mut self, object: &Object) -> Origin {
        self.id(Source::Object { stack: object.allocated, size: object.size, class: object.class })
    }

    /// The origin of the stack frame that the instruction at `pc` made room for.
    pub(super) fn frame(&mut self, pc: u64) -> Origin {
        self.id(Source::Frame { pc })
    }

    /// What a report says about an origin; `None` where it is not known.
    pub(crate) fn describe(&self, state: &State, origin: Origin) -> Option<OriginInfo> {
        Some(match *self.table.get((origin as usize).checked_sub(1)?)? {
            Source::Object { stack, size, class } => OriginInfo {
                description: format!("a {size}-byte {} object", class.name()),
                stack: state.whole_of(stack),
            },
            Source::Frame { pc } => {
                let frame = state.frame(pc, false);
                OriginInfo {
                    description: format!("the stack frame of {}", frame.function),
                    stack: vec![frame],
                }
            }
        })
    }
}

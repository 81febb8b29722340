//! Words for messages.

use super::maps::{Dir, Mapping};
use crate::effect::MapKind;
use crate::finding::Related;
use crate::machine::State;
use crate::stacks::StackId;

pub(super) fn bytes(n: u64) -> String {
    if n == 1 { "1 byte".to_owned() } else { format!("{n} bytes") }
}

/// What was mapped and for what.
pub(super) fn mapping(m: &Mapping) -> String {
    match (m.kind, m.list) {
        (MapKind::List, Some((_, count))) => {
            format!("a list of {count} entries mapped {}", m.dir.name())
        }
        (MapKind::Resource, _) => format!("a {}-byte resource mapped {}", m.size, m.dir.name()),
        _ => format!("a {}-byte buffer mapped {}", m.size, m.dir.name()),
    }
}

/// What a mapping may be used for, after "the device".
pub(super) fn rights(dir: Dir) -> &'static str {
    match dir {
        Dir::ToDevice => "may be reading",
        Dir::FromDevice => "may be writing",
        Dir::Both | Dir::None => "may be reading and writing",
    }
}

/// A further place of a finding.
pub(super) fn related(state: &State, what: &str, stack: StackId) -> Related {
    Related { what: what.to_owned(), stack: state.frames(state.stacks.get(stack)), context: None }
}

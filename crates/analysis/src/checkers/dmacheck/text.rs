//! Text for DMACheck's messages.

use super::maps::{Dir, Mapping};
pub(super) use crate::checkers::names::{access, access_word, bytes, related};
use guardrail_knowledge::effect::MapKind;

/// What was mapped and for which direction.
pub(super) fn mapping(m: &Mapping) -> String {
    match (m.kind, m.list) {
        (MapKind::List, Some((_, count))) => {
            format!("a list of {count} entries mapped {}", m.dir.name())
        }
        (MapKind::Resource, _) => format!("a {}-byte resource mapped {}", m.size, m.dir.name()),
        _ => format!("a {}-byte buffer mapped {}", m.size, m.dir.name()),
    }
}

/// What the device may do with a mapping, as text after "the device".
pub(super) fn rights(dir: Dir) -> &'static str {
    match dir {
        Dir::ToDevice => "may be reading",
        Dir::FromDevice => "may be writing",
        Dir::Both | Dir::None => "may be reading and writing",
    }
}

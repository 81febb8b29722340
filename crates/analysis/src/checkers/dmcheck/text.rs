//! Text for DMCheck's messages, in the style of KASAN.

use super::Touch;
pub(super) use crate::checkers::names::{access_word, bytes};
use crate::machine::Object;

pub(super) fn verb(touch: Touch) -> String {
    format!("{} of {}", access_word(touch.store), bytes(touch.len))
}

pub(super) fn object(object: &Object) -> String {
    format!("a {}-byte {} object", object.size, object.class.name())
}

pub(super) fn access(kind: &str, touch: Touch, of: &Object) -> String {
    let place = if touch.addr >= of.start {
        format!("at offset {}", touch.addr - of.start)
    } else {
        format!("{} before the start", bytes(of.start - touch.addr))
    };
    format!("{kind} {} of {} {place} of {}", access_word(touch.store), bytes(touch.len), object(of))
}

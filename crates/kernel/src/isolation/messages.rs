//! The messages of active drivers, which have no functions of their own: the core's functions carry all of them.

use guardrail_abi::{Action, Value};
use guardrail_binfmt::{ModuleImage, prototypes};
use guardrail_knowledge::table::Row;
use std::collections::BTreeMap;

/// Messages, `PROTOCOL.MESSAGE`, with the numbers of their boxes.
pub type Boxes = BTreeMap<String, u8>;

/// The enumeration of the boxes.
const ENUMERATION: &str = "active_box";
/// Where a driver names the protocols of each of its main functions.
const SECTION: &str = ".guardrail.active";
/// Boxes that one action compares with.
const AT_ONCE: usize = 8;

/// The rows about messages, by `PROTOCOL.MESSAGE`.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    pub received: BTreeMap<&'a str, Row<'a>>,
    pub emitted: BTreeMap<&'a str, Row<'a>>,
    boxes: Boxes,
}

impl<'a> Messages<'a> {
    pub fn new(boxes: Boxes) -> Messages<'a> {
        Messages { received: BTreeMap::new(), emitted: BTreeMap::new(), boxes }
    }

    /// The rows that are about messages of the driver, each with the action that looks whether it is about the present one.
    pub fn of(&self, received: bool) -> Vec<(&Row<'a>, Action)> {
        let (rows, name) = match received {
            true => (&self.received, "active_received"),
            false => (&self.emitted, "active_emitted"),
        };
        let mut found: Vec<(&Row<'a>, Vec<u8>)> = Vec::new();
        for (message, row) in rows {
            let Some(number) = self.boxes.get(*message) else { continue };
            match found.iter_mut().find(|(known, boxes)| *known == row && boxes.len() < AT_ONCE) {
                Some((_, boxes)) => boxes.push(*number),
                None => found.push((row, vec![*number])),
            }
        }
        let action = |boxes: Vec<u8>| Action::Custom {
            name: name.to_owned(),
            pointer: Value::Const(0),
            size: Value::Const(packed(&boxes)),
        };
        found.into_iter().map(|(row, boxes)| (row, action(boxes))).collect()
    }
}

/// Boxes as one value: a byte for each, one more than its number.
fn packed(boxes: &[u8]) -> i64 {
    let bytes = boxes.iter().rev().fold(0, |packed: u64, number| packed << 8 | u64::from(number + 1));
    bytes.cast_signed()
}

/// The protocols that an active driver follows; none where the module is no such driver.
pub fn protocols(driver: &ModuleImage) -> Vec<String> {
    let bytes = driver.section_index(SECTION).map(|section| driver.section_bytes(section));
    let text = String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let mut names: Vec<String> =
        text.split(['\0', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The messages of the protocols that an active driver follows, by its DWARF.
pub fn boxes(driver: &ModuleImage) -> Boxes {
    let protocols = protocols(driver);
    if protocols.is_empty() {
        return Boxes::new();
    }
    let constants = prototypes::enumeration(driver, ENUMERATION);
    let named = constants.iter().flat_map(|(name, number)| {
        let number = u8::try_from(*number).ok().filter(|number| *number < u8::MAX);
        let of = |protocol: &String| {
            let message = name.strip_prefix(&protocol.to_uppercase())?.strip_prefix('_')?;
            Some((format!("{protocol}.{}", message.to_lowercase()), number?))
        };
        protocols.iter().filter_map(of).collect::<Vec<_>>()
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_box_of_several_is_the_lowest_byte() {
        assert_eq!(packed(&[0]), 1);
        assert_eq!(packed(&[16, 0x99]), 0x9a11);
        assert_eq!(packed(&[254; 8]), -1);
    }
}

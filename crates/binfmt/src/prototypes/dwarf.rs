//! Types and prototypes made from scratch.
//!
//! The seeds of the fuzzer are made of them too (`examples/binfmt_seed`), so nothing here knows more of the crate.

use crate::module::tests::Object;

const ABBREV: &[u8] = &[
    1, 0x11, 1, 0, 0, // unit
    2, 0x24, 0, 0x03, 0x08, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0, // base type: name, encoding, size
    3, 0x0f, 0, 0x49, 0x13, 0, 0, // pointer
    4, 0x13, 0, 0x03, 0x08, 0x0b, 0x0b, 0, 0, // structure: name, size
    5, 0x26, 0, 0x49, 0x13, 0, 0, // const
    6, 0x2e, 1, 0x03, 0x08, 0x49, 0x13, 0, 0, // function with a result
    7, 0x05, 0, 0x03, 0x08, 0x49, 0x13, 0, 0, // parameter
    8, 0x2e, 1, 0x03, 0x08, 0, 0, // function without
    9, 0x18, 0, 0, 0, // ...
    10, 0x0f, 0, 0, 0, // pointer to nothing
    11, 0x04, 1, 0x03, 0x08, 0, 0, // enumeration: name
    12, 0x28, 0, 0x03, 0x08, 0x1c, 0x0b, 0, 0, // constant: name, value
    0,
];
/// Offsets of the two types.
pub(crate) const INT: u32 = 12;
pub(crate) const TIMER: u32 = 19;

/// A module whose unit has these entries behind the two types. Each is bytes, and the offset of a type where that is not zero.
pub(crate) fn module(own: &[(&[u8], u32)]) -> Vec<u8> {
    let mut info = vec![0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1];
    info.extend(b"\x02int\0\x05\x04\x04timer_list\0\x28");
    for (bytes, reference) in own {
        info.extend(*bytes);
        if *reference != 0 {
            info.extend(reference.to_le_bytes());
        }
    }
    info.push(0);
    let len = (info.len() - 4) as u32;
    info[..4].copy_from_slice(&len.to_le_bytes());
    let mut object = Object::module("drv");
    object.debug(".debug_abbrev", ABBREV, &[]);
    object.debug(".debug_info", &info, &[]);
    object.build()
}

/// A module with functions, one of them with a variable number of arguments, and two of one name.
pub(crate) fn functions() -> Vec<u8> {
    let (timer, constant, to_constant, nothing) = (32, 37, 42, 47);
    module(&[
        (b"\x03", TIMER),
        (b"\x05", TIMER),
        (b"\x03", constant),
        (b"\x0a", 0),
        (b"\x06probe\0", INT),
        (b"\x07t\0", timer),
        (b"\x07c\0", to_constant),
        (b"\x07p\0", nothing),
        (b"\0\x08say\0", 0),
        (b"\x07n\0", INT),
        (b"\x09\0", 0),
        // Two functions have one name.
        (b"\x08twin\0\0", 0),
        (b"\x06twin\0", INT),
        (b"\0", 0),
    ])
}

//! The strings of a device.

/// Indexes of strings.
pub(super) const MANUFACTURER: u8 = 1;
pub(super) const PRODUCT: u8 = 2;
pub(super) const SERIAL: u8 = 3;
/// The address of a network interface, as twelve hexadecimal digits.
pub(super) const ADDRESS: u8 = 4;

/// US English.
const LANGUAGE: u16 = 0x0409;

/// The string descriptor with this index; all indexes have one. Index 0 lists the languages.
pub(super) fn string(index: u8) -> Vec<u8> {
    let text = match index {
        0 => return [&[4, 3][..], &LANGUAGE.to_le_bytes()].concat(),
        MANUFACTURER => "Guardrail".to_owned(),
        PRODUCT => "Synthetic device".to_owned(),
        // A serial number that is the address of a network interface, too.
        SERIAL | ADDRESS => "02475244524C".to_owned(),
        _ => format!("String {index}"),
    };
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = u8::try_from(units.len() + 2).unwrap_or(u8::MAX);
    [&[length, 3][..], &units].concat()
}

//! Bounds-checked little-endian reads.

/// `N` bytes at `at`; `None` beyond the end.
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).map(u32::from_le_bytes)
}

pub(crate) fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    array(data, at).map(i32::from_le_bytes)
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    array(data, at).map(u64::from_le_bytes)
}

/// `len` bytes at `at`; `None` beyond the end.
pub(crate) fn slice(data: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(at).ok()?;
    let end = usize::try_from(at.checked_add(len)?).ok()?;
    data.get(start..end)
}

/// The bytes from `at` up to a NUL; `None` where no NUL follows.
pub(crate) fn c_str(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?;
    Some(&rest[..rest.iter().position(|&b| b == 0)?])
}

//! Steps that every plugin takes when QEMU loads it.

use crate::ffi::Info;
use serde::de::DeserializeOwned;
use std::ffi::{CStr, c_char, c_int};

/// Reads the JSON configuration that the plugin's first argument names (`config=FILE`). Also returns the
/// file's name, and by how much the kernel of a guest was moved that has booted already (`slide=NUMBER`). An error is
/// one sentence.
///
/// # Safety
/// `info` points to QEMU's description of itself, `argv` to `argc` strings, during this call.
pub unsafe fn configured<T: DeserializeOwned>(
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> Result<(T, String, Option<u64>), String> {
    // SAFETY: by the contract, and QEMU gives its target's name.
    let (info, target) = unsafe { (&*info, CStr::from_ptr((*info).target_name)) };
    let target = target.to_string_lossy();
    if target != "x86_64" || !info.system_emulation {
        return Err(format!("only qemu-system-x86_64 can run it, this is an emulator of {target}"));
    }
    let args: Vec<String> = (0..argc.max(0) as usize)
        // SAFETY: QEMU passes `argc` strings.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned())
        .collect();
    let slide = |word: &String| u64::from_str_radix(word.strip_prefix("slide=0x")?, 16).ok();
    let given = match args.as_slice() {
        [one] => one.strip_prefix("config=").map(|path| (path, None)),
        [one, other] => one.strip_prefix("config=").zip(slide(other).map(Some)),
        _ => None,
    };
    let (path, slide) =
        given.ok_or("give it config=FILE, and slide=0xNUMBER where the guest runs already")?;
    let text = std::fs::read(path).map_err(|e| format!("cannot read its configuration {path}: {e}"))?;
    let config =
        serde_json::from_slice(&text).map_err(|e| format!("its configuration {path} is malformed: {e}"))?;
    Ok((config, path.to_owned(), slide))
}

//! What a process without capabilities reaches by the owners and modes of files.

use crate::calls::no_rights;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first of these paths that exists, but that this user cannot read without capabilities. Root reads other
/// users' files by a capability alone, and a jailed process has none.
pub fn out_of_reach<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let paths: Vec<&Path> = paths.filter(|path| path.exists()).collect();
    std::thread::scope(|scope| {
        let look = || {
            // Capabilities belong to a thread, and this one ends at once.
            no_rights().ok()?;
            paths.iter().find(|path| !readable(path)).map(|path| path.to_path_buf())
        };
        scope.spawn(look).join().ok().flatten()
    })
}

/// Folders must also be entered. A kernel that cannot say so has no Landlock either, and then the answer is yes.
fn readable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let mode = if path.is_dir() { libc::R_OK | libc::X_OK } else { libc::R_OK };
    // SAFETY: the name is a C string that lives through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, name.as_ptr(), mode, libc::AT_EACCESS) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EACCES)
}

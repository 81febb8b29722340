//! Confines the process that asks for it.

use crate::calls::check;
use crate::enter::restrict;
use crate::filter::Program;
use crate::landlock;
use crate::list::Jail;
use std::io;

/// Confines this thread, and all that it starts, for good. It reaches what the jail lists, and makes the calls that the
/// program lets pass. Threads that run already are not confined.
///
/// Where the kernel has no Landlock, the program alone holds.
pub fn confine(jail: &Jail, calls: &Program) -> io::Result<()> {
    let rules = landlock::rules(jail)?;
    // SAFETY: this operation takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    rules.map_or(Ok(()), |rules| restrict(&rules))?;
    calls.install()
}

//! What this machine can do to keep jailed processes apart from the rest of the system.

use crate::calls;
use crate::list::Jail;
use crate::root::{Right, Root};
use crate::user::{Role, become_user};
use std::path::Path;
use std::sync::OnceLock;

/// Folders of the file systems that most files of a run are in.
const USUAL: [&str; 3] = ["/usr", "/var/tmp", "/dev/shm"];

/// How far jailed processes are apart from the rest of the system, besides what Landlock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// A process has a root of its own with the files that its jail lists, and namespaces for mounts, IPC and the host's
    /// name. It has one for the network where its jail names no port.
    pub roots: bool,
    /// Processes of different [roles](Role) have different users.
    pub users: bool,
}

impl Apart {
    /// What is missing; `None` where all of it is there.
    pub fn gap(self) -> Option<&'static str> {
        match self {
            Apart { roots: false, .. } => {
                Some("they keep your uid, and see the host's file names, network and IPC")
            }
            Apart { users: false, .. } => Some("they keep your uid"),
            Apart { .. } => None,
        }
    }
}

/// Tries it, once in each process.
pub fn apart() -> Apart {
    let (right, users) = means();
    Apart { roots: right.is_some(), users }
}

/// The way to a private root that works here, and whether the process in it can have a user of its own.
pub(crate) fn means() -> (Option<Right>, bool) {
    static FOUND: OnceLock<(Option<Right>, bool)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: geteuid has no preconditions.
        let root = unsafe { libc::geteuid() } == 0;
        if root && works(Right::Root, Some(Role::Guest.user())) {
            return (Some(Right::Root), true);
        }
        let rights = [Right::Root, Right::Namespace];
        (
            rights
                .into_iter()
                .filter(|right| root || *right != Right::Root)
                .find(|right| works(*right, None)),
            false,
        )
    })
}

/// Tries all that a jailed process does, in a process that ends at once.
fn works(right: Right, user: Option<u32>) -> bool {
    let jail = USUAL.iter().fold(Jail::new(), Jail::writes);
    let Ok(Some(root)) = Root::new(&jail, right, Path::new("/"), user) else { return false };
    if root.user != user || user.is_some() && !calls::outranks_all() {
        return false;
    }
    // SAFETY: the child makes system calls alone, and ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            let entered = root.enter_namespaces().and_then(|()| root.enter());
            let entered = entered.and_then(|()| user.map_or(Ok(()), become_user));
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(entered.is_err().into()) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is writable, and the child is this process's own.
            child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child && status == 0
        }
    }
}

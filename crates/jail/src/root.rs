//! A private root for a jailed process: a file system in memory, where the files and folders of the jail's list appear.
//!
//! The root is planned before the fork. Between fork and exec a child makes system calls alone.

use crate::calls::check;
use crate::list::Jail;
use crate::tree::{Node, Same, Tree};
use crate::user;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Namespaces of every private root, besides those that the caller's rights need.
const ALWAYS: libc::c_int = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
/// A folder of every system. The new root lies on it until it takes the place of the old one.
const STAGE: &CStr = c"/tmp";
/// File systems of the kernel, whose modes let every user read what a list names.
const KERNEL: [&str; 2] = ["/proc", "/sys"];

/// How a child gets the right to make namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// The caller has it.
    Root,
    /// In a user namespace that maps the caller's user alone.
    Namespace,
}

/// A private root that is ready to be entered.
pub(crate) struct Root {
    namespaces: libc::c_int,
    /// The contents of `uid_map` and `gid_map`, where a user namespace is made.
    maps: Option<[CString; 2]>,
    names: Vec<Name>,
    /// Where the process starts.
    start: CString,
    /// The user that the process becomes; `None` where it keeps its own.
    pub(crate) user: Option<u32>,
}

/// What a child makes in the new root. Paths have no slash in front.
enum Name {
    Folder(CString),
    Link { at: CString, target: CString },
    Same { at: CString, same: Same, mount: Mount },
}

/// A mount of a file or folder of the system.
struct Mount {
    source: CString,
    /// Holds the mount that the parent made; the child finds its number in `tree`.
    _owner: Option<OwnedFd>,
    tree: AtomicI32,
}

impl Root {
    /// Plans a root. `wanted` is the user that the process is to become, if the file systems permit it. `None` where the
    /// list names all files.
    pub(crate) fn new(
        jail: &Jail,
        right: Right,
        start: &Path,
        wanted: Option<u32>,
    ) -> io::Result<Option<Root>> {
        let Some(tree) = Tree::of(jail, start) else { return Ok(None) };
        let network = jail.connects.is_empty() && jail.binds.is_empty() && !jail.udp;
        let mut namespaces = ALWAYS | if network { libc::CLONE_NEWNET } else { 0 };
        let mut maps = None;
        if right == Right::Namespace {
            namespaces |= libc::CLONE_NEWUSER;
            // SAFETY: these calls have no preconditions.
            let [user, group] = unsafe { [libc::geteuid(), libc::getegid()] };
            maps = Some([user, group].map(|id| c_string(format!("{id} {id} 1\n"))));
        }
        // Where a file system does not map owners, the process keeps its user.
        let owned = wanted.and_then(|user| Some((names(&tree, right, Some(user)).ok()?, Some(user))));
        let (names, user) = owned.map_or_else(|| names(&tree, right, None).map(|names| (names, None)), Ok)?;
        let start = c_string(start.as_os_str().as_bytes());
        Ok(Some(Root { namespaces, maps, names, start, user }))
    }

    /// Enters the namespaces. Runs between fork and exec.
    pub(crate) fn enter_namespaces(&self) -> io::Result<()> {
        // SAFETY: the call takes plain numbers.
        check(unsafe { libc::unshare(self.namespaces) }.into())?;
        if let Some([users, groups]) = &self.maps {
            // A user without rights may map groups only where it cannot leave its own.
            write(c"/proc/self/setgroups", c"deny")?;
            write(c"/proc/self/uid_map", users)?;
            write(c"/proc/self/gid_map", groups)?;
        }
        Ok(())
    }

    /// Builds the root and enters it. Runs between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        for name in &self.names {
            if let Name::Same { same, mount, .. } = name
                && mount.tree.load(Ordering::Relaxed) < 0
            {
                let tree = open_tree(&mount.source)?;
                mount.tree.store(tree, Ordering::Relaxed);
                set(tree, *same, None)?;
            }
        }
        // What is mounted here stays here.
        mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
        // SAFETY: umask has no preconditions.
        let mask = unsafe { libc::umask(0) };
        mount(Some(c"tmpfs"), STAGE, Some(c"mode=755"), libc::MS_NOSUID | libc::MS_NODEV)?;
        chdir(STAGE)?;
        self.names.iter().try_for_each(Name::make)?;
        // The old root then lies on the new one, and is taken away.
        // SAFETY: the paths are C strings.
        check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
        // SAFETY: the path is a C string.
        check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }.into())?;
        chdir(c"/")?;
        let fixed = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        mount(None, c"/", None, fixed)?;
        // SAFETY: umask has no preconditions.
        unsafe { libc::umask(mask) };
        // A folder that the process may not enter is not where it starts.
        let _ = chdir(&self.start);
        Ok(())
    }
}

impl Name {
    fn make(&self) -> io::Result<()> {
        match self {
            Name::Folder(at) => folder(at),
            // SAFETY: both are C strings.
            Name::Link { at, target } => there(unsafe { libc::symlink(target.as_ptr(), at.as_ptr()) }),
            Name::Same { at, same, mount } => {
                if !same.inside {
                    if same.is_folder { folder(at)? } else { file(at)? }
                }
                let tree = mount.tree.load(Ordering::Relaxed);
                // SAFETY: the descriptor is open, and the paths are C strings.
                check(unsafe {
                    libc::syscall(
                        libc::SYS_move_mount,
                        tree,
                        c"".as_ptr(),
                        libc::AT_FDCWD,
                        at.as_ptr(),
                        libc::MOVE_MOUNT_F_EMPTY_PATH,
                    )
                })
            }
        }
    }
}

/// The names of a root. Root's mounts are made here, so that what cannot be mounted is known before the fork.
fn names(tree: &Tree, right: Right, user: Option<u32>) -> io::Result<Vec<Name>> {
    let map = user.map(user::root_as).transpose()?;
    let name = |(path, node): (&Path, &Node)| {
        let at = c_string(&path.as_os_str().as_bytes()[1..]);
        Ok(match node {
            Node::Folder => Name::Folder(at),
            Node::Link(target) => Name::Link { at, target: c_string(target.as_os_str().as_bytes()) },
            Node::Same(same) => {
                let source = c_string(path.as_os_str().as_bytes());
                let owner = match right {
                    Right::Root => Some(mounted(path, &source, *same, map.as_ref())?),
                    Right::Namespace => None,
                };
                let tree = AtomicI32::new(owner.as_ref().map_or(-1, AsRawFd::as_raw_fd));
                Name::Same { at, same: *same, mount: Mount { source, _owner: owner, tree } }
            }
        })
    };
    tree.nodes().map(name).collect()
}

/// A mount that is nowhere yet. With a map, it shows root's files as those of another user.
fn mounted(path: &Path, source: &CStr, same: Same, map: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let tree = open_tree(source)?;
    // SAFETY: the system just returned this descriptor, and nothing else owns it.
    let tree = unsafe { OwnedFd::from_raw_fd(tree) };
    let Some(map) = map else { return set(tree.as_raw_fd(), same, None).map(|()| tree) };
    set(tree.as_raw_fd(), same, Some(map)).or_else(|error| match open_to_all(path, same) {
        true => set(tree.as_raw_fd(), same, None),
        false => Err(error),
    })?;
    Ok(tree)
}

/// True where every user may do what the list permits.
fn open_to_all(path: &Path, same: Same) -> bool {
    let bits = if same.writable { 0o006 } else { 0o004 };
    let permitted = || fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits);
    let of_kernel = KERNEL.iter().any(|place| path.starts_with(place));
    !same.writable && of_kernel || !same.is_folder && permitted()
}

fn open_tree(source: &CStr) -> io::Result<RawFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
    // SAFETY: the path is a C string.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags) };
    check(tree).map(|()| tree as RawFd)
}

/// Sets what a mount permits.
fn set(tree: RawFd, same: Same, map: Option<&OwnedFd>) -> io::Result<()> {
    let mut flags = libc::MOUNT_ATTR_NOSUID;
    if !same.is_device {
        flags |= libc::MOUNT_ATTR_NODEV;
    }
    // The mode of a device says nothing of its file system.
    if !same.writable && !same.is_device {
        flags |= libc::MOUNT_ATTR_RDONLY;
    }
    if map.is_some() {
        flags |= libc::MOUNT_ATTR_IDMAP;
    }
    let attributes = libc::mount_attr {
        attr_set: flags,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: map.map_or(0, |map| map.as_raw_fd() as u64),
    };
    let all = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the descriptor is open, and the structure lives through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            c"".as_ptr(),
            all,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

fn mount(source: Option<&CStr>, place: &CStr, data: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let source = source.map_or(std::ptr::null(), CStr::as_ptr);
    let data = data.map_or(std::ptr::null(), CStr::as_ptr).cast();
    // SAFETY: all texts are C strings or null; a new file system's type is its source.
    check(unsafe { libc::mount(source, place.as_ptr(), source, flags, data) }.into())
}

fn chdir(place: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string.
    check(unsafe { libc::chdir(place.as_ptr()) }.into())
}

fn folder(at: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string.
    there(unsafe { libc::mkdir(at.as_ptr(), 0o755) })
}

/// An empty file, for a mount on it.
fn file(at: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string.
    there(unsafe { libc::mknod(at.as_ptr(), libc::S_IFREG | 0o644, 0) })
}

/// A name that is there already is not made.
fn there(result: libc::c_int) -> io::Result<()> {
    check(result.into()).or_else(|error| match error.raw_os_error() {
        Some(libc::EEXIST) => Ok(()),
        _ => Err(error),
    })
}

fn write(place: &CStr, text: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string.
    let file = unsafe { libc::open(place.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    check(file.into())?;
    // SAFETY: the descriptor is open, and the text has as many bytes.
    let written =
        check(unsafe { libc::write(file, text.as_ptr().cast(), text.count_bytes()) } as libc::c_long);
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(file) };
    written
}

/// A path or a text of this program; the system lets no path contain a zero.
fn c_string(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).expect("it contains no zero")
}

//! What each kind of finding means: the help that reports give.

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, as in `kind`.
    pub name: &'static str,
    /// One line.
    pub short: &'static str,
    /// What it means, and what to look for.
    pub help: &'static str,
}

const fn kind(name: &'static str, short: &'static str, help: &'static str) -> Kind {
    Kind { name, short, help }
}

/// All kinds that checkers report, by name.
pub const KINDS: &[Kind] = &[
    kind(
        "double-free",
        "Memory freed twice",
        "The object was freed before. Look at both stacks: one of the two owners must give it up, or clear its pointer.",
    ),
    kind(
        "invalid-free",
        "Free of something that is not the start of an allocation",
        "The pointer passed to the free function points into an object, or to memory that no allocator handed out.",
    ),
    kind(
        "leak",
        "Memory never freed",
        "The driver allocated the object and was unloaded without freeing it. Look for an error path or a missing counterpart in remove.",
    ),
    kind(
        "mismatched-free",
        "Memory freed by the wrong function",
        "The allocator and the free function do not belong together, such as kmalloc with vfree.",
    ),
    kind(
        "mmio-out-of-bounds",
        "Device access beyond the mapped range",
        "The register lies outside what ioremap or pci_iomap mapped. Check the offset against the size of the BAR.",
    ),
    kind(
        "null-dereference",
        "Access through a null pointer",
        "The address lies in the first page. A result that may be NULL was used without a check.",
    ),
    kind(
        "out-of-bounds",
        "Access beyond an object",
        "The address lies beside a heap object, a variable or a stack frame. The exact size counts, not that of the allocator's size class.",
    ),
    kind(
        "uninit-address",
        "Address computed from an uninitialized value",
        "A pointer or an index that nobody wrote was used to access memory. The origin says where the value was allocated.",
    ),
    kind(
        "uninit-branch",
        "Decision on an uninitialized value",
        "A conditional jump depends on bytes that nobody wrote. The origin says where they were allocated. Zeroing by the allocator that the driver did not ask for does not count as writing.",
    ),
    kind(
        "uninit-to-device",
        "Uninitialized value given to the device",
        "Bytes that nobody wrote went to a register or into memory that the device reads; kernel memory may leak to the device.",
    ),
    kind(
        "uninit-to-user",
        "Uninitialized value copied to user space",
        "Bytes that nobody wrote were copied to a user program, often padding of a structure; kernel memory leaks.",
    ),
    kind(
        "use-after-free",
        "Access to freed memory",
        "The object was freed before the access. Look at the stack of the free and at who still holds the pointer: a timer, work or interrupt that was not stopped?",
    ),
    kind(
        "user-pointer",
        "User memory touched without the access functions",
        "The driver used an address of user space directly. Use copy_from_user, copy_to_user, get_user or put_user.",
    ),
    kind(
        "wild-access",
        "Access to memory that belongs to nobody",
        "The address is in no object, no mapping and no variable that the driver may touch.",
    ),
];

/// The kind with this name.
pub fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_and_unique() {
        assert!(KINDS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(find("leak").is_some() && find("no-such-kind").is_none());
    }
}

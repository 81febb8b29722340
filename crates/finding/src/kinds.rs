//! The meaning of each kind of finding: the help in reports.

/// A kind of finding, with its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name of the kind, as in [`Finding::kind`](crate::Finding::kind).
    pub name: &'static str,
    /// A one-line description.
    pub short: &'static str,
    /// The meaning of the kind, and what to look for.
    pub help: &'static str,
}

const fn kind(name: &'static str, short: &'static str, help: &'static str) -> Kind {
    Kind { name, short, help }
}

/// All kinds that checkers report, sorted by name.
pub const KINDS: &[Kind] = &[
    kind(
        "beyond-quota",
        "Guarded driver allocates more than it may",
        "What the driver has allocated and not released is more than the parameter `quota` allows. Look for what is never released, or for a size that comes from elsewhere.",
    ),
    kind(
        "call-without-right",
        "Guarded driver calls what it may not",
        "The driver calls by pointer what is no function that it was given, nor one of the kernel's. The pointer was never set, was overwritten, or belongs to memory that is gone.",
    ),
    kind(
        "data-race",
        "Two accesses that nothing orders",
        "Two contexts touch the same bytes, at least one writes, no lock is common to both, and nothing makes one come before the other. Both stacks, the locks held and the reason are in the report. Triage says whether a fault follows.",
    ),
    kind(
        "dma-bad-buffer",
        "Memory that must not be mapped for DMA",
        "The buffer lies on a stack, in vmalloc space, in a module, in user memory, or is freed. Use kmalloc, pages or coherent memory.",
    ),
    kind(
        "dma-debug",
        "Kernel's own check of DMA fails",
        "The kernel was built with CONFIG_DMA_API_DEBUG, and the message says what is wrong with the mapping.",
    ),
    kind(
        "dma-direction",
        "DMA buffer used against its direction",
        "The CPU reads what the device may still write. Unmap the buffer, or call dma_sync_single_for_cpu, before reading.",
    ),
    kind(
        "dma-freed-while-mapped",
        "Memory freed while the device may use it",
        "Unmap the buffer before freeing it: the device may write into memory that belongs to somebody else by then.",
    ),
    kind(
        "dma-leak",
        "DMA mapping or DMA memory never given back",
        "The driver was unloaded and left a mapping, coherent memory, a pool or a register mapping behind. Look for an error path or a missing counterpart in remove.",
    ),
    kind(
        "dma-misaligned",
        "DMA buffer that shares a cache line",
        "The buffer does not begin and end at cache lines. On machines whose DMA is not coherent, neighbors in the same line get lost or stale.",
    ),
    kind(
        "dma-overlap",
        "Two live mappings on one cache line",
        "Two buffers that are mapped at a time share a cache line, and the device writes one of them.",
    ),
    kind(
        "dma-race",
        "CPU and device use a buffer at a time",
        "The CPU writes to a buffer that is lent to the device. Wait for completion and unmap it, or sync it for the CPU and back.",
    ),
    kind(
        "dma-repeated-map",
        "Buffer mapped while it is mapped",
        "The same memory was mapped for the same device before and not unmapped.",
    ),
    kind(
        "dma-repeated-unmap",
        "Mapping that is not there unmapped",
        "The bus address was unmapped before, or never mapped.",
    ),
    kind(
        "dma-sync-range",
        "Sync beyond the mapping",
        "The range to be synced reaches beyond what was mapped.",
    ),
    kind(
        "dma-sync-unmapped",
        "Sync of a mapping that is not there",
        "The bus address belongs to no live mapping of the device.",
    ),
    kind(
        "dma-unchecked",
        "Result of a mapping not checked",
        "The bus address was used without dma_mapping_error. Mappings fail when an IOMMU or bounce buffers run out.",
    ),
    kind(
        "dma-uninit",
        "Device may read bytes that nobody wrote",
        "The buffer that is lent to the device holds bytes that nobody initialized; kernel memory may leak to the device.",
    ),
    kind(
        "dma-unmap-mismatch",
        "Unmapped otherwise than mapped",
        "Size, direction, device or sort (single, list) of the unmap differ from those of the map.",
    ),
    kind(
        "dma-use-after-free",
        "DMA memory used after it was given back",
        "The coherent memory or pool block was freed before the access.",
    ),
    kind(
        "double-free",
        "Memory freed twice",
        "The object was freed before. Look at both stacks: one of the two owners must give it up, or clear its pointer.",
    ),
    kind(
        "double-lock",
        "Lock taken twice by one thread",
        "The thread holds the lock already and waits for itself.",
    ),
    kind(
        "endless-loop",
        "Guarded driver does not come back",
        "A call of the driver ran for as long as the parameter `watchdog` allows, without sleeping. Look for a register or a flag that is waited for without a limit.",
    ),
    kind(
        "fault-in-driver",
        "The processor faults in a guarded driver",
        "An access to a bad address, a division by zero or an instruction that traps, in the driver's own code.",
    ),
    kind(
        "free-without-right",
        "Guarded driver frees what is not its own",
        "The memory was not allocated by the driver, was allocated by another function than the one that frees it belongs to, or is freed already.",
    ),
    kind(
        "hung-task",
        "Thread that waits for long",
        "A thread has slept uninterruptibly for longer than the kernel's limit. The trace shows what it waits for.",
    ),
    kind(
        "init-locked",
        "Lock initialized by the thread that holds it",
        "Who waits for the lock is forgotten, and the next thread takes it although it is held. Initialize it once, before others can take it.",
    ),
    kind(
        "invalid-free",
        "Free of something that is not the start of an allocation",
        "The pointer passed to the free function points into an object, or to memory that no allocator handed out.",
    ),
    kind(
        "irq-inversion",
        "Lock taken in an interrupt and elsewhere with interrupts on",
        "If the interrupt comes while the lock is held on the same CPU, it waits forever. Use the _irqsave or _bh variant outside the interrupt.",
    ),
    kind(
        "kasan",
        "KASAN found an invalid access",
        "The kernel was built with KASAN, which found a use after free or an access out of bounds. The title says which.",
    ),
    kind(
        "kcsan",
        "KCSAN found a data race",
        "The kernel was built with KCSAN, which saw two accesses at a time that nothing orders.",
    ),
    kind(
        "kernel-bug",
        "Kernel reports a bug of its own",
        "A condition that must hold does not: `BUG_ON`, or another message that begins with `BUG:`. The kernel cannot continue safely.",
    ),
    kind(
        "kernel-oops",
        "Processor faults in the kernel",
        "An access to a bad address, a division by zero or an instruction that traps. The first function of the trace faults; the cause may lie before.",
    ),
    kind(
        "kernel-panic",
        "Kernel gives up",
        "The kernel stopped the machine, and no message before explains it. The text says why.",
    ),
    kind(
        "kernel-warning",
        "Kernel warns",
        "A condition that `WARN_ON` checks does not hold: the driver calls a function in the wrong way or at the wrong time, or checks its own state. The trace names the caller.",
    ),
    kind(
        "kfence",
        "KFENCE found an invalid access",
        "The kernel's sampling checker saw an access to freed memory, beyond an object, or an invalid free. It watches few objects at a time; what it reports is true.",
    ),
    kind(
        "kmemleak",
        "kmemleak found memory that nobody refers to",
        "The kernel was built with kmemleak; /sys/kernel/debug/kmemleak in the guest lists the allocations.",
    ),
    kind(
        "kmsan",
        "KMSAN found a use of uninitialized memory",
        "The kernel was built with KMSAN. The stacks say where the value was allocated and where it was used.",
    ),
    kind(
        "leak",
        "Memory never freed",
        "The driver allocated the object and was unloaded without freeing it. Look for an error path or a missing counterpart in remove.",
    ),
    kind(
        "list-corruption",
        "Links of a list that do not fit each other",
        "An entry was added or removed twice, freed while in a list, or overwritten. Look at who owns the entry and which lock protects the list.",
    ),
    kind(
        "lock-held-at-return",
        "Return to the kernel with a lock held",
        "A driver function returns to the kernel while it holds a lock that it took. Look for an early return.",
    ),
    kind(
        "lock-order",
        "Locks taken in opposite orders",
        "Two threads that take the locks in these orders at a time wait for each other forever. Both places are in the report.",
    ),
    kind(
        "lockdep",
        "Kernel's lock validator objects",
        "The kernel was built with lockdep, which saw an order of locks, or a use of a lock or of RCU, that can deadlock or is wrong.",
    ),
    kind(
        "lockup",
        "CPU does not come back",
        "A CPU ran kernel code for longer than the watchdog's limit without scheduling, or with interrupts off. Look for a loop without an end or for a lock that is never released.",
    ),
    kind(
        "lost-value",
        "Driver reads what is left after a write was lost",
        "The order of a race was forced: both sides wrote the same bytes, the second without having seen what the first wrote. `confirm` reports it as the consequence of the race.",
    ),
    kind(
        "memory-corruption",
        "Allocator's data are wrong",
        "The slab or page allocator found its own data overwritten, or an object freed twice. The cause is an earlier write or free.",
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
        "no-right",
        "Guarded driver does what it has no right to",
        "The report says what was done, what the driver holds there, and what it would need.",
    ),
    kind(
        "null-dereference",
        "Access through a null pointer",
        "The address lies in the first page. A result that may be NULL was used without a check.",
    ),
    kind(
        "object-without-right",
        "Guarded driver misuses an object of the kernel",
        "What was passed to the kernel is no object of that type, or not in a state in which this can be done: not initialized, given away, or in use.",
    ),
    kind(
        "out-of-bounds",
        "Access beyond an object",
        "The address lies beside a heap object, a variable or a stack frame. The exact size counts, not that of the allocator's size class.",
    ),
    kind(
        "protocol-order",
        "Call or callback in the wrong state",
        "The object's class does not allow this in its state: registered before ready, freed before stopped, completed twice.",
    ),
    kind(
        "protocol-rule-1",
        "Message that the protocol does not allow",
        "The driver sends a message in a state of its protocol that has no such transition. The notes show the messages up to there.",
    ),
    kind(
        "protocol-rule-2",
        "Message that may never be awaited",
        "The kernel may send the message, but the driver may go on for ever without an AWAIT for it. Look at the loop in the notes.",
    ),
    kind(
        "protocol-rule-3",
        "AWAIT that may never end",
        "No protocol of the driver is in a fair state whose incoming messages are all awaited here. Await what is missing.",
    ),
    kind(
        "protocol-rule-4",
        "State that is owed an answer and may never be left",
        "The kernel waits for an answer, and the driver may never send it. Look for a loop without a bound.",
    ),
    kind(
        "protocol-rule-5",
        "Main function returns in the middle of a protocol",
        "A driver may end only where all its protocols are in final states.",
    ),
    kind(
        "protocol-rule-6",
        "Sleep while an atomic message is handled",
        "What may sleep is called between an atomic message and the next AWAIT. The message may come from an interrupt or under a lock.",
    ),
    kind(
        "protocol-unanswered",
        "Request never completed",
        "The kernel gave the driver a request that was not completed when the driver was unloaded.",
    ),
    kind(
        "rcu-stall",
        "CPU that RCU waits for",
        "A CPU or thread stays in an RCU reader, or runs without a pause, for longer than the kernel's limit.",
    ),
    kind(
        "redzone",
        "Access between objects",
        "The address lies in memory that the allocator keeps between objects: it never was anybody's. Look for an index or a length that is far off.",
    ),
    kind(
        "refcount",
        "Reference count out of order",
        "A count overflowed, went below zero, or was taken when it was zero already. Look for a put without a get, or for a use after the last put.",
    ),
    kind(
        "sleep-in-atomic",
        "Function that may sleep called in atomic context",
        "Interrupts, softirqs or preemption are off, or a spinlock is held. Use the atomic variant, or call it elsewhere.",
    ),
    kind(
        "stack-overflow",
        "More stack than there is",
        "A function needs more of the kernel's stack than is left. Look for recursion and for large variables; the report has what each function on the stack uses.",
    ),
    kind(
        "torn-value",
        "Driver reads bytes of two writes",
        "The order of a race was forced: two writes of different bytes overlap, and the driver read what they left together. `confirm` reports it as the consequence of the race.",
    ),
    kind(
        "transmit-timeout",
        "Network device does not send",
        "The driver stopped a transmit queue and did not wake it again in time.",
    ),
    kind(
        "undefined-behavior",
        "UBSAN found undefined behavior",
        "The kernel was built with UBSAN: an index out of bounds, a shift too far, or an overflow. The message has the source line.",
    ),
    kind(
        "unhandled-interrupt",
        "Interrupt that no handler takes",
        "The line is active, and every handler says that the interrupt is not its own; the kernel has disabled the line. Look at how the handler acknowledges its device.",
    ),
    kind(
        "uninit-address",
        "Address computed from an uninitialized value",
        "A pointer or an index that nobody wrote was used to access memory. The origin says where the value was allocated.",
    ),
    kind(
        "uninit-branch",
        "Decision on an uninitialized value",
        "A conditional jump, or what the kernel prints, depends on bytes that nobody wrote. The origin says where they were allocated. Zeroing by the allocator that the driver did not ask for does not count as writing.",
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
        "unlock-unlocked",
        "Unlock of a lock that is not held",
        "The thread does not hold the lock that it gives back.",
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
    kind(
        "write-without-right",
        "Guarded driver writes where it may not",
        "The bytes are none that the driver allocated, was given, or has as variables. Look for an index or a length that is off, or for memory that was freed or given away. The report says whose they are.",
    ),
];

/// Kinds of errors that corrupt memory, use memory that is gone or lies elsewhere, or hand what nobody wrote to a
/// device. Sorted.
const ENDANGERS_MEMORY: &[&str] = &[
    "dma-bad-buffer",
    "dma-freed-while-mapped",
    "dma-use-after-free",
    "double-free",
    "invalid-free",
    "kasan",
    "kernel-bug",
    "kernel-oops",
    "kfence",
    "list-corruption",
    "memory-corruption",
    "mismatched-free",
    "mmio-out-of-bounds",
    "null-dereference",
    "out-of-bounds",
    "redzone",
    "refcount",
    "uninit-address",
    "uninit-to-device",
    "use-after-free",
    "user-pointer",
    "wild-access",
];

/// Whether an error of this kind does harm by itself: to memory, or to the device.
pub fn endangers_memory(name: &str) -> bool {
    ENDANGERS_MEMORY.binary_search(&name).is_ok()
}

/// The names of all kinds, sorted.
pub fn all() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// The kind with this name; `None` for an unknown name.
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
        assert!(ENDANGERS_MEMORY.is_sorted() && ENDANGERS_MEMORY.iter().all(|name| find(name).is_some()));
        assert!(endangers_memory("use-after-free") && !endangers_memory("leak"));
    }
}

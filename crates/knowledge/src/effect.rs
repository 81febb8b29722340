//! What a kernel function does, as far as checkers use it: the vocabulary of call summaries.

mod dma;

pub use dma::{DmaOp, MapKind};

/// A length or size in bytes, as a call has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// This constant.
    Const(u64),
    /// The value of an argument.
    Arg(u8),
    /// The product of two arguments.
    Product(u8, u8),
    /// 4096 shifted left by an argument.
    Order(u8),
    /// A value read at the function's first instruction, by its index after the arguments (hooks only).
    Deref(u8),
    /// The result (non-negative), plus one byte for the terminating zero where the table asks for it.
    Result {
        /// Bytes to add to the result.
        extra: u64,
        /// The argument that bounds the result; `None` if no argument does.
        bound: Option<u8>,
    },
    /// This constant, or the value of an argument if that is less.
    AtMost(u64, u8),
    /// Up to and with the byte that the result points to, and no more than an argument says. All that the argument
    /// says where the result is null; nothing where no argument bounds it.
    Found(Option<u8>),
    /// To the end of the object that the pointer points into.
    Rest,
}

/// Classes of memory, by allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Memory of kmalloc and its kin.
    Slab,
    /// An object of a cache with a name.
    Cache,
    /// Whole pages.
    Page,
    /// Memory in vmalloc space.
    Vmalloc,
    /// Per-CPU memory.
    Percpu,
    /// Coherent DMA memory.
    Dma,
    /// Mapped device registers.
    Io,
    /// Memory that is freed with its device.
    Managed,
}

impl Class {
    /// The classes with their names in the tables.
    pub const NAMED: [(&str, Class); 8] = [
        ("slab", Class::Slab),
        ("cache", Class::Cache),
        ("page", Class::Page),
        ("vmalloc", Class::Vmalloc),
        ("percpu", Class::Percpu),
        ("dma", Class::Dma),
        ("io", Class::Io),
        ("managed", Class::Managed),
    ];

    /// The class of this name in the tables.
    pub fn named(word: &str) -> Option<Class> {
        Self::NAMED.iter().find(|(name, _)| *name == word).map(|(_, class)| *class)
    }

    /// A word for messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Slab => "slab",
            Class::Cache => "cache",
            Class::Page => "page",
            Class::Vmalloc => "vmalloc",
            Class::Percpu => "per-CPU",
            Class::Dma => "DMA",
            Class::Io => "mapped device",
            Class::Managed => "device-managed",
        }
    }
}

/// When new memory is zeroed because its user asked for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// Memory is never zeroed on request.
    No,
    /// Memory is always zeroed.
    Yes,
    /// Memory is zeroed where this argument, gfp flags, has `__GFP_ZERO`.
    Gfp(u8),
}

/// What a pointer of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ptr {
    /// An argument holds the address.
    Arg(u8),
    /// An argument holds a `struct page *`; another may hold an offset into the page.
    Page(u8, Option<u8>),
}

/// The direction of a DMA mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// An argument holds it: 0 both, 1 to the device, 2 from the device.
    Arg(u8),
    /// Always from the device.
    FromDevice,
}

/// One effect of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The result is a new object.
    Alloc {
        /// The class of the memory.
        class: Class,
        /// Its size; [`Len::Rest`] where an inner allocation has a better one.
        size: Len,
        /// When it is zeroed on request.
        zeroed: Zeroed,
        /// Whether the result is a `struct page *` and not an address.
        page: bool,
        /// The argument with the `kmem_cache`.
        cache: Option<u8>,
        /// The argument with an object that moves into the new one (krealloc).
        realloc: Option<u8>,
    },
    /// The call fills an array, which its hook reads as a list at the return, with pointers to new objects.
    AllocList {
        /// The class of the memory.
        class: Class,
        /// The size of each object.
        size: Len,
        /// When they are zeroed on request.
        zeroed: Zeroed,
        /// The argument with the `kmem_cache`.
        cache: Option<u8>,
    },
    /// The objects are freed to which the pointers of an array point; the hook reads it as a list at the call.
    FreeList {
        /// The classes that the objects may have.
        classes: Vec<Class>,
        /// The argument with the `kmem_cache`, which may be null.
        cache: Option<u8>,
    },
    /// The pages of an array of `struct page *` get second addresses, through which writes are not seen; the hook reads
    /// it as a list at the call. What was known of the second addresses, which begin at the result, no longer holds.
    Alias {
        /// The argument with the number of pages.
        count: u8,
    },
    /// An object is freed.
    Free {
        /// A pointer to the object.
        ptr: Ptr,
        /// The classes that the object may have.
        classes: Vec<Class>,
        /// The argument with the `kmem_cache`.
        cache: Option<u8>,
    },
    /// The kernel becomes the object's owner and frees it later (kfree_rcu).
    TakeOver {
        /// A pointer to the object.
        ptr: Ptr,
    },
    /// The kernel writes memory.
    Define {
        /// The first byte written.
        ptr: Ptr,
        /// How many bytes it writes.
        len: Len,
    },
    /// The kernel copies memory, definedness and all.
    Copy {
        /// The first byte written.
        dst: Ptr,
        /// The first byte read.
        src: Ptr,
        /// How many bytes it copies.
        len: Len,
    },
    /// The kernel reads memory; no definedness follows from that.
    Read {
        /// The first byte read.
        ptr: Ptr,
        /// How many bytes it reads.
        len: Len,
    },
    /// The kernel copies memory to user space.
    ToUser {
        /// The first byte read.
        src: Ptr,
        /// How many bytes it copies.
        len: Len,
    },
    /// `__put_user_*`: the kernel copies rax to user space.
    PutUser {
        /// Bytes of the value.
        size: u8,
    },
    /// The kernel writes a value to a device register or port (iowrite*).
    Output {
        /// The argument with the value.
        value: u8,
        /// Bytes of the value.
        size: u8,
        /// The argument with the register's address.
        register: Option<u8>,
    },
    /// The kernel reads a device register (ioread*).
    Input {
        /// Bytes of the register.
        size: u8,
        /// The argument with the register's address.
        register: u8,
    },
    /// The kernel writes a block of memory to a device (iowrite*_rep, memcpy_toio).
    ToDevice {
        /// The first byte read.
        src: Ptr,
        /// How much, in units of `unit` bytes.
        len: Len,
        /// Bytes of a unit.
        unit: u8,
    },
    /// The kernel lends memory to the device.
    DmaMap {
        /// The first byte lent.
        ptr: Ptr,
        /// How many bytes it lends.
        len: Len,
        /// Which way the device may use it.
        direction: Direction,
    },
    /// The result is a `kmem_cache`.
    CreateCache {
        /// Its constructor, or 0.
        ctor: Len,
        /// Its flags.
        flags: Len,
    },
    /// The object is as large as its slot from now on (ksize).
    Grow {
        /// A pointer to the object.
        ptr: Ptr,
    },
    /// The kernel may keep the pointer.
    Escape {
        /// The argument with the pointer.
        arg: u8,
    },
    /// An active driver has broken a rule: the arguments with its number, with the lowest address of the domain's stack,
    /// and with the main function. The text of it follows the arguments of the hook, as words.
    #[allow(missing_docs)]
    Violation { rule: u8, stack: u8, main: u8 },
    /// The kernel formats the arguments behind one that is a format of `printf`; see [`crate::format`].
    Format {
        /// The argument with the format.
        format: u8,
    },
    /// What the call does to locks and to the order of events.
    Sync(SyncOp),
    /// What the call does to DMA mappings and DMA memory.
    Dma(DmaOp),
}

/// Locks and objects of which a kernel has one, as tables and charts name them in `global(NAME)`.
pub const GLOBALS: [&str; 8] = ["rtnl", "rcu", "grace", "current", "cpus", "pci", "device", "handlers"];

/// What names a lock or an object that orders events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The address that an argument holds, plus an offset.
    Arg {
        /// The number of the argument, from 0.
        arg: u8,
        /// Bytes to add to the argument.
        offset: u64,
    },
    /// The kernel has one of it (RCU, RTNL).
    Global(&'static str),
}

/// Kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// A `spinlock_t`.
    Spin,
    /// An `rwlock_t`.
    Rw,
    /// A `struct mutex`, and RTNL.
    Mutex,
    /// A `struct semaphore`.
    Semaphore,
    /// A `struct rw_semaphore`.
    RwSem,
    /// An RCU read section.
    Rcu,
    /// The lock of a socket.
    Socket,
    /// A bit that `test_and_set_bit` takes.
    Bit,
}

impl LockKind {
    /// The kinds with their names in the tables.
    pub(crate) const NAMED: [(&str, LockKind); 8] = [
        ("spin", LockKind::Spin),
        ("rw", LockKind::Rw),
        ("mutex", LockKind::Mutex),
        ("semaphore", LockKind::Semaphore),
        ("rwsem", LockKind::RwSem),
        ("rcu", LockKind::Rcu),
        ("socket", LockKind::Socket),
        ("bit", LockKind::Bit),
    ];

    /// The kind of this name in the tables.
    pub fn named(word: &str) -> Option<LockKind> {
        Self::NAMED.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockMode {
    /// By one holder.
    Exclusive,
    /// By several readers.
    Shared,
}

/// For which results of a call an effect takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum When {
    /// For all results.
    #[default]
    Always,
    /// The result (32 bits) is zero.
    Zero,
    /// The result (32 bits) is not zero.
    NonZero,
    /// The result is false; a `bool` has 8 bits, and those above it are undefined.
    False,
    /// The result is true; it has 8 bits as well.
    True,
}

impl When {
    /// The condition `zero` or `nonzero`; `narrow` where only the lowest byte of the result counts.
    pub fn named(word: &str, narrow: bool) -> Option<When> {
        Some(match (word, narrow) {
            ("zero", false) => When::Zero,
            ("zero", true) => When::False,
            ("nonzero", false) => When::NonZero,
            ("nonzero", true) => When::True,
            _ => return None,
        })
    }

    /// Whether the effect takes place for this result.
    pub fn holds(self, result: u64) -> bool {
        match self {
            When::Always => true,
            When::Zero => result as u32 == 0,
            When::NonZero => result as u32 != 0,
            When::False => result as u8 == 0,
            When::True => result as u8 != 0,
        }
    }
}

/// What a call does to locks and to the order of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOp {
    /// Takes a lock, which is held when the call returns.
    Lock {
        /// The kind of the lock.
        kind: LockKind,
        /// The address or name of the lock.
        key: Key,
        /// How the caller holds it.
        mode: LockMode,
        /// For which results the lock is held.
        when: When,
        /// Whether it never waits (`trylock`), so that it adds no edge to the order of locks.
        tries: bool,
    },
    /// Releases a lock when the call begins.
    Unlock {
        /// The kind of the lock.
        kind: LockKind,
        /// The address or name of the lock.
        key: Key,
        /// How the caller held it.
        mode: LockMode,
    },
    /// The function runs with the lock held: its caller took it where nothing is watched.
    Hold {
        /// The kind of the lock.
        kind: LockKind,
        /// The address or name of the lock.
        key: Key,
    },
    /// What precedes the call happens before all later acquires of this object.
    Release {
        /// The address or name of the object.
        key: Key,
        /// Whether it is a word in memory, so that a read of it acquires as well.
        word: bool,
    },
    /// What precedes releases of the object happens before what follows the call.
    Acquire {
        /// The address or name of the object.
        key: Key,
        /// For which results the call acquires.
        when: When,
    },
    /// The call may sleep.
    Sleeps {
        /// It sleeps only where this argument, gfp flags, has `__GFP_DIRECT_RECLAIM`; `None`: always.
        gfp: Option<u8>,
    },
}

/// All effects of a function, in the order in which they take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The function's name.
    pub name: String,
    /// The effects; empty if a call does nothing that checkers use.
    pub effects: Vec<Effect>,
}

impl Summary {
    /// The summary of an unknown function: the call may write and keep all that an argument points to.
    pub fn unknown(name: &str) -> Summary {
        let effects = (0..6)
            .flat_map(|i| [Effect::Define { ptr: Ptr::Arg(i), len: Len::Rest }, Effect::Escape { arg: i }])
            .collect();
        Summary { name: name.to_owned(), effects }
    }
}

#[cfg(test)]
mod tests {
    use super::When;

    #[test]
    fn a_results_lowest_byte_decides_for_a_boolean() {
        let when = |word, narrow| When::named(word, narrow).unwrap();
        assert!(when("nonzero", false).holds(0x100));
        assert!(!when("nonzero", true).holds(0x100));
        assert!(when("zero", true).holds(0xff00));
        assert_eq!(When::named("negative", false), None);
    }
}

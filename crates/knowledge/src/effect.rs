//! What a kernel function does, as far as checkers care: the vocabulary of call summaries.

/// A length or size that a call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// A constant.
    Const(u64),
    /// An argument.
    Arg(u8),
    /// The product of two arguments.
    Product(u8, u8),
    /// 4096 shifted left by an argument.
    Order(u8),
    /// A value read at the entry, by its index after the arguments (hooks only).
    Deref(u8),
    /// The result (non-negative), and one byte more for the terminating zero where asked for.
    Result {
        /// Added to the result.
        extra: u64,
        /// The argument that bounds it, if any.
        bound: Option<u8>,
    },
    /// To the end of the object that the pointer points into.
    Rest,
}

/// Sorts of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// kmalloc and its kin.
    Slab,
    /// An object of a cache with a name.
    Cache,
    /// Whole pages.
    Page,
    /// vmalloc space.
    Vmalloc,
    /// Per-CPU memory.
    Percpu,
    /// Coherent DMA memory.
    Dma,
    /// Mapped device registers.
    Io,
    /// Memory that goes with its device.
    Managed,
}

impl Class {
    /// The class that a table calls so.
    pub fn named(word: &str) -> Option<Class> {
        Some(match word {
            "slab" => Class::Slab,
            "cache" => Class::Cache,
            "page" => Class::Page,
            "vmalloc" => Class::Vmalloc,
            "percpu" => Class::Percpu,
            "dma" => Class::Dma,
            "io" => Class::Io,
            "managed" => Class::Managed,
            _ => return None,
        })
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

/// When memory comes zeroed because its user asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// Never.
    No,
    /// Always.
    Yes,
    /// Where the argument has `__GFP_ZERO`.
    Gfp(u8),
}

/// What a pointer of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ptr {
    /// An argument holds the address.
    Arg(u8),
    /// An argument holds a `struct page *`; an argument may hold an offset into the page.
    Page(u8, Option<u8>),
}

/// The direction of a DMA mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// An argument says: 0 both, 1 to the device, 2 from the device.
    Arg(u8),
    /// From the device.
    FromDevice,
}

/// One effect of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The result is a new object.
    Alloc {
        /// What sort.
        class: Class,
        /// How large; [`Len::Rest`] where an inner allocation knows better.
        size: Len,
        /// Whether it comes zeroed.
        zeroed: Zeroed,
        /// The result is a `struct page *` and not an address.
        page: bool,
        /// The argument with the `kmem_cache`.
        cache: Option<u8>,
        /// The argument with an object that moves into the new one (krealloc).
        realloc: Option<u8>,
    },
    /// An object ends.
    Free {
        /// The object.
        ptr: Ptr,
        /// What it may be.
        classes: Vec<Class>,
        /// The argument with the `kmem_cache`.
        cache: Option<u8>,
    },
    /// The kernel takes the object over and frees it later (kfree_rcu).
    TakeOver {
        /// The object.
        ptr: Ptr,
    },
    /// The kernel writes memory.
    Define {
        /// Where.
        ptr: Ptr,
        /// How much.
        len: Len,
    },
    /// The kernel copies memory, definedness and all.
    Copy {
        /// To.
        dst: Ptr,
        /// From.
        src: Ptr,
        /// How much.
        len: Len,
    },
    /// The kernel reads memory, of whose definedness nothing follows.
    Read {
        /// Where.
        ptr: Ptr,
        /// How much.
        len: Len,
    },
    /// The kernel copies memory to user space.
    ToUser {
        /// Where.
        src: Ptr,
        /// How much.
        len: Len,
    },
    /// `__put_user_*`: rax goes to user space.
    PutUser {
        /// Bytes.
        size: u8,
    },
    /// The kernel writes a value to a device register or port (iowrite*).
    Output {
        /// The argument with the value.
        value: u8,
        /// Bytes.
        size: u8,
        /// The argument with the register's address.
        register: Option<u8>,
    },
    /// The kernel reads a device register (ioread*).
    Input {
        /// Bytes.
        size: u8,
        /// The argument with the register's address.
        register: u8,
    },
    /// The kernel writes a block of memory to a device (iowrite*_rep, memcpy_toio).
    ToDevice {
        /// Where.
        src: Ptr,
        /// How much, in units of `unit` bytes.
        len: Len,
        /// Bytes of a unit.
        unit: u8,
    },
    /// Memory is lent to the device.
    DmaMap {
        /// Where.
        ptr: Ptr,
        /// How much.
        len: Len,
        /// Which way.
        direction: Direction,
    },
    /// The result is a `kmem_cache`.
    CreateCache {
        /// Its constructor, or 0.
        ctor: Len,
    },
    /// The object is as large as its slot from now on (ksize).
    Grow {
        /// The object.
        ptr: Ptr,
    },
    /// The kernel may keep the pointer.
    Escape {
        /// The argument.
        arg: u8,
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
        /// The argument.
        arg: u8,
        /// Added to it.
        offset: u64,
    },
    /// There is one of it in the kernel (RCU, RTNL).
    Global(&'static str),
}

/// Sorts of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// `spinlock_t`.
    Spin,
    /// `rwlock_t`.
    Rw,
    /// `struct mutex`, and RTNL.
    Mutex,
    /// `struct semaphore`.
    Semaphore,
    /// `struct rw_semaphore`.
    RwSem,
    /// An RCU read section.
    Rcu,
    /// A socket.
    Socket,
    /// A bit that `test_and_set_bit` takes.
    Bit,
}

impl LockKind {
    /// The kind that a table calls so.
    pub fn named(word: &str) -> Option<LockKind> {
        Some(match word {
            "spin" => LockKind::Spin,
            "rw" => LockKind::Rw,
            "mutex" => LockKind::Mutex,
            "semaphore" => LockKind::Semaphore,
            "rwsem" => LockKind::RwSem,
            "rcu" => LockKind::Rcu,
            "socket" => LockKind::Socket,
            "bit" => LockKind::Bit,
            _ => return None,
        })
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockMode {
    /// By one.
    Exclusive,
    /// By several readers.
    Shared,
}

/// For which results of a call an effect takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum When {
    /// For all.
    #[default]
    Always,
    /// The result (32 bits) is zero.
    Zero,
    /// The result (32 bits) is not zero.
    NonZero,
    /// The result is false; a `bool` has 8 bits, and those above it are undefined.
    False,
    /// The result is true.
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

    /// Whether the effect takes place.
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
    /// Takes a lock; held when the call returns.
    Lock {
        /// The sort.
        kind: LockKind,
        /// Which.
        key: Key,
        /// How.
        mode: LockMode,
        /// For which results.
        when: When,
        /// It never waits (`trylock`), so it adds no edge to the order of locks.
        tries: bool,
    },
    /// Gives a lock back, when the call begins.
    Unlock {
        /// The sort.
        kind: LockKind,
        /// Which.
        key: Key,
        /// How.
        mode: LockMode,
    },
    /// The function runs with the lock held: its caller has taken it where nothing is watched.
    Hold {
        /// The sort.
        kind: LockKind,
        /// Which.
        key: Key,
    },
    /// What came before the call comes before whoever acquires this object later.
    Release {
        /// The object.
        key: Key,
        /// It is a word in memory: who reads it acquires as well.
        word: bool,
    },
    /// What came before releases of the object comes before what follows the call.
    Acquire {
        /// The object.
        key: Key,
        /// For which results.
        when: When,
    },
    /// The call may sleep.
    Sleeps {
        /// Only where this argument, gfp flags, has `__GFP_DIRECT_RECLAIM`.
        gfp: Option<u8>,
    },
}

/// How a streaming mapping was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MapKind {
    /// `dma_map_single` and `dma_map_page`: one function since 4.10, not told apart.
    Single,
    /// `dma_map_sg`.
    List,
    /// `dma_map_resource`.
    Resource,
}

/// What a call does to DMA mappings and DMA memory. Numbers are arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmaOp {
    /// Lends memory to a device; the result is the bus address, or all ones.
    Map {
        /// The device.
        dev: u8,
        /// The memory.
        ptr: Ptr,
        /// The memory is told by its physical address instead (`dma_map_phys`).
        physical: Option<u8>,
        /// How much.
        len: Len,
        /// Which way.
        dir: u8,
        /// How.
        kind: MapKind,
    },
    /// Takes it back.
    Unmap {
        /// The device.
        dev: u8,
        /// The bus address.
        addr: u8,
        /// How much.
        len: Len,
        /// Which way.
        dir: u8,
        /// How it was made.
        kind: MapKind,
    },
    /// Lends the entries of a list; the result is how many bus segments there are.
    MapList {
        /// The device.
        dev: u8,
        /// The list.
        list: u8,
        /// How many entries, where an argument says; a `struct sg_table` otherwise.
        count: Option<u8>,
        /// Which way.
        dir: u8,
    },
    /// Takes them back.
    UnmapList {
        /// The device.
        dev: u8,
        /// The list.
        list: u8,
        /// How many entries, where an argument says.
        count: Option<u8>,
        /// Which way.
        dir: u8,
    },
    /// Hands a part of a mapping to the CPU or back to the device for a while.
    SyncSingle {
        /// The device.
        dev: u8,
        /// The bus address.
        addr: u8,
        /// An offset to be added to it, where there is one.
        offset: Option<u8>,
        /// How much.
        len: Len,
        /// Which way.
        dir: u8,
        /// To the CPU.
        for_cpu: bool,
    },
    /// The same for a list.
    SyncList {
        /// The device.
        dev: u8,
        /// The list.
        list: u8,
        /// How many entries.
        count: u8,
        /// Which way.
        dir: u8,
        /// To the CPU.
        for_cpu: bool,
    },
    /// The result is coherent memory; its bus address is stored through an argument.
    AllocCoherent {
        /// The device.
        dev: u8,
        /// How much.
        size: u8,
        /// Where the bus address goes.
        handle: u8,
    },
    /// Coherent memory ends.
    FreeCoherent {
        /// The device.
        dev: u8,
        /// How much.
        size: u8,
        /// The memory.
        cpu: u8,
        /// Its bus address.
        handle: u8,
    },
    /// The result is a pool.
    CreatePool {
        /// The device.
        dev: u8,
        /// Bytes of a block.
        size: u8,
    },
    /// A pool ends.
    DestroyPool {
        /// The pool.
        pool: u8,
    },
    /// The result is a block of a pool.
    PoolAlloc {
        /// The pool.
        pool: u8,
        /// Where the bus address goes.
        handle: u8,
    },
    /// A block of a pool ends.
    PoolFree {
        /// The pool.
        pool: u8,
        /// The block.
        cpu: u8,
        /// Its bus address.
        handle: u8,
    },
    /// The call has memory of the device made or mapped in a way that is not followed further.
    Other {
        /// The device.
        dev: u8,
    },
    /// The result is where device registers are mapped.
    MapIo,
    /// Device registers are not needed any more.
    UnmapIo {
        /// Where they are mapped.
        addr: u8,
    },
    /// A driver has left its device: when the call returns, all must be given back.
    Unbind {
        /// The device.
        dev: u8,
    },
    /// Asks whether an address is in vmalloc space, as `dma_map_single` does of every buffer.
    AskVmalloc {
        /// The address.
        addr: u8,
    },
    /// Names the driver of a device, as the warning does with which `dma_map_single` refuses a buffer.
    NameDriver,
    /// The result says whether the mappings of a device need to be taken back.
    NeedUnmap {
        /// The device.
        dev: u8,
    },
}

/// All effects of a function, in the order in which they take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The function's name.
    pub name: String,
    /// What it does.
    pub effects: Vec<Effect>,
}

impl Summary {
    /// Of a function of which nothing is known: whatever an argument points to may be written and kept.
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

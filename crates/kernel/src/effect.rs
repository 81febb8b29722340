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

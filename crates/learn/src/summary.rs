//! What a function does with its arguments.

use crate::value::{ARGS, Set, Val};

/// Where in the code something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The number of the function's name.
    pub function: u32,
    /// Bytes from its start.
    pub offset: u32,
}

/// The bytes behind a pointer that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// A range of constant offsets, where any is written: the first byte, and the byte behind the last.
    pub range: Option<(i32, i32)>,
    /// A range from the pointer on, as long as an argument times a constant.
    pub counted: Option<(u8, u32)>,
    /// Whether more may be written than the two ranges say.
    pub unbounded: bool,
}

impl Extent {
    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Extent::default()
    }

    /// Adds constant offsets.
    pub(crate) fn add(&mut self, low: i32, high: i32) {
        let (a, b) = self.range.unwrap_or((low, high));
        self.range = Some((a.min(low), b.max(high)));
    }

    /// Adds a range of a length that an argument states.
    pub(crate) fn add_counted(&mut self, arg: u8, times: u32) {
        match self.counted {
            None => self.counted = Some((arg, times)),
            Some((known, most)) if known == arg => self.counted = Some((arg, most.max(times))),
            Some(_) => self.unbounded = true,
        }
    }
}

/// What happens to memory that is reached by pointers in an argument's memory, or by computing with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deep(pub u8);

impl Deep {
    /// It is read.
    pub(crate) const READ: Deep = Deep(1);
    /// It is written.
    pub(crate) const WRITE: Deep = Deep(2);
    /// It is freed.
    pub(crate) const FREE: Deep = Deep(4);
    /// It is called.
    pub(crate) const CALL: Deep = Deep(8);
    /// It is handed to code that is not known.
    pub(crate) const ESCAPE: Deep = Deep(16);

    /// Adds what happens.
    pub(crate) fn add(&mut self, other: Deep) {
        self.0 |= other.0;
    }

    /// Whether one of these happens.
    pub(crate) fn any(self, other: Deep) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a function does with one argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// What is written through it.
    pub write: Extent,
    /// Whether it is read through.
    pub read: bool,
    /// What happens further on.
    pub deep: Deep,
    /// The kinds of allocations as which it may be freed, a bit each.
    pub free: u16,
    /// Whether it may be freed at an offset.
    pub inner_free: bool,
    /// Whether it is stored where others find it.
    pub keep: bool,
    /// Whether it is called.
    pub call: bool,
    /// Whether it is handed to code that is not known.
    pub escape: bool,
    /// Whether it is used as an offset of per-CPU memory.
    pub per_cpu: bool,
}

impl Effects {
    fn join(&mut self, other: &Effects, widen: bool) {
        if let Some((low, high)) = other.write.range {
            self.write.add(low, high);
        }
        if let Some((arg, times)) = other.write.counted {
            self.write.add_counted(arg, times);
        }
        self.write.unbounded |= other.write.unbounded;
        if widen && self.write != other.write {
            // The ranges stay as they were, so that this ends.
            self.write = Extent { unbounded: true, ..other.write };
        }
        self.read |= other.read;
        self.deep.add(other.deep);
        self.free |= other.free;
        self.inner_free |= other.inner_free;
        self.keep |= other.keep;
        self.call |= other.call;
        self.escape |= other.escape;
        self.per_cpu |= other.per_cpu;
    }
}

/// The first places of what matters most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// The first write.
    pub write: Option<Site>,
    /// The first release.
    pub free: Option<Site>,
    /// The first other use.
    pub other: Option<Site>,
}

/// What a function does with its arguments, and what it returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// By argument.
    pub args: [Effects; ARGS],
    /// By argument.
    pub sites: [Sites; ARGS],
    /// What it returns, in terms of its arguments; `None` if it does not return.
    pub result: Option<Val>,
    /// The arguments that are freed on every way through the function on which they are not NULL.
    pub freed: Set,
    /// Whether memory that it returns is also known elsewhere.
    pub shared: bool,
    /// Why the function could not be followed, if it could not.
    pub unknown: Option<Unknown>,
}

/// Why a function could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Its code is not at hand.
    Absent,
    /// It is too large.
    Large,
    /// It jumps to where no function begins, or has bytes that are no code.
    Odd,
}

impl Summary {
    /// A function that does nothing and does not return yet.
    pub(crate) const NOTHING: Summary = Summary {
        args: [Effects {
            write: Extent { range: None, counted: None, unbounded: false },
            read: false,
            deep: Deep(0),
            free: 0,
            inner_free: false,
            keep: false,
            call: false,
            escape: false,
            per_cpu: false,
        }; ARGS],
        sites: [Sites { write: None, free: None, other: None }; ARGS],
        result: None,
        freed: 0,
        shared: false,
        unknown: None,
    };

    /// Adds what was found before, and returns whether that was less. With `widen`, a range that has grown is unbounded.
    pub(crate) fn grow_from(&mut self, before: &Summary, widen: bool) -> bool {
        if before.unknown.is_some() {
            *self = before.clone();
            return false;
        }
        for (own, known) in self.args.iter_mut().zip(&before.args) {
            own.join(known, widen);
        }
        for (own, known) in self.sites.iter_mut().zip(&before.sites) {
            // The first place that was found stays, so that places do not change in circles.
            own.write = known.write.or(own.write);
            own.free = known.free.or(own.free);
            own.other = known.other.or(own.other);
        }
        self.result = match (self.result, before.result) {
            (Some(own), Some(known)) => Some(known.join(own)),
            (own, known) => own.or(known),
        };
        if before.result.is_some() {
            self.freed &= before.freed;
        }
        self.shared |= before.shared;
        (&self.args, self.result, self.freed, self.shared, self.unknown)
            != (&before.args, before.result, before.freed, before.shared, before.unknown)
    }

    /// A function that returns, and does nothing with its arguments.
    pub(crate) fn harmless() -> Summary {
        Summary { result: Some(Val::TOP), ..Summary::NOTHING }
    }

    /// A function that may do anything.
    pub(crate) fn unknown(why: Unknown) -> Summary {
        Summary { result: Some(Val::TOP), shared: true, unknown: Some(why), ..Summary::NOTHING }
    }
}

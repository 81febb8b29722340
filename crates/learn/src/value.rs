//! What a register or a stack slot may hold, as far as it depends on the function's arguments.

/// How many arguments are followed: six in registers, the others on the stack.
pub const ARGS: usize = 12;

/// A set of arguments, a bit each.
pub type Set = u16;

/// A value, as the analysis knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    /// The arguments to which the value may be equal, give or take an offset.
    pub direct: Set,
    /// The arguments from whose memory the value may have been loaded, directly or through further pointers.
    pub deep: Set,
    /// The structure, or the function type, to which the value points; 0 if that is not known.
    pub ty: u32,
    /// Whether the value may also be one that has nothing to do with arguments.
    pub maybe: bool,
    /// Whether the value may be an address of the function's own frame.
    pub frame: bool,
    /// What is known of it exactly.
    pub kind: Kind,
}

/// What is known of a value exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Const(i64),
    /// The stack pointer at the function's entry, plus an offset.
    Frame(i32),
    /// The one argument in `direct`, or one pointer of known type, plus an offset.
    Offset(i32),
    /// The one argument in `direct`, which is a number of at most 32 bits.
    Narrow,
    /// Memory that was allocated in this call.
    Fresh(Fresh),
    /// Any value: nothing is known of it.
    Top,
}

/// Memory that was allocated in this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// The place of its kind among those of the tables.
    pub class: u8,
    /// Its size.
    pub size: Size,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Not known.
    Unknown,
    /// A constant.
    Const(u32),
    /// An argument times a constant.
    Arg(u8, u32),
}

impl Val {
    /// A value of which nothing is known but that it comes from no argument.
    pub(crate) const TOP: Val = Val { direct: 0, deep: 0, ty: 0, maybe: true, frame: false, kind: Kind::Top };

    /// A number.
    pub(crate) fn number(value: i64) -> Val {
        Val { kind: Kind::Const(value), maybe: false, ..Val::TOP }
    }

    /// An address in the function's frame.
    pub(crate) fn frame(offset: i32) -> Val {
        Val { kind: Kind::Frame(offset), maybe: false, frame: true, ..Val::TOP }
    }

    /// An argument.
    pub(crate) fn arg(index: usize, ty: u32) -> Val {
        Val { direct: 1 << index, ty, maybe: false, kind: Kind::Offset(0), ..Val::TOP }
    }

    /// An argument that is a number of at most 32 bits.
    pub(crate) fn narrow(index: usize) -> Val {
        Val { direct: 1 << index, maybe: false, kind: Kind::Narrow, ..Val::TOP }
    }

    /// A value that was loaded from memory of these arguments.
    pub(crate) fn loaded(deep: Set, ty: u32) -> Val {
        let kind = if ty == 0 { Kind::Top } else { Kind::Offset(0) };
        Val { deep, ty, kind, ..Val::TOP }
    }

    /// The argument that the value is, without an offset and without alternatives but NULL.
    pub(crate) fn exact(&self) -> Option<usize> {
        let one = self.direct.count_ones() == 1 && !self.maybe && !self.frame;
        (one && matches!(self.kind, Kind::Offset(0) | Kind::Narrow))
            .then_some(self.direct.trailing_zeros() as usize)
    }

    /// The argument to which the value points where it points to one at all, with the offset.
    pub(crate) fn place(&self) -> Option<(usize, i32)> {
        match self.kind {
            Kind::Offset(offset) if self.direct.count_ones() == 1 => {
                Some((self.direct.trailing_zeros() as usize, offset))
            }
            _ => None,
        }
    }

    /// Whether the value can be a pointer that comes from an argument.
    pub(crate) fn pointers(&self) -> Set {
        if self.kind == Kind::Narrow { 0 } else { self.direct }
    }

    /// The value as a number of 32 bits.
    pub(crate) fn low(self) -> Val {
        match self.kind {
            Kind::Const(value) => Val::number(i64::from(value as u32)),
            Kind::Narrow => self,
            Kind::Offset(0) if self.direct.count_ones() == 1 => {
                Val { direct: self.direct, maybe: self.maybe, kind: Kind::Narrow, ..Val::TOP }
            }
            _ => Val::TOP,
        }
    }

    /// The value plus a constant.
    pub(crate) fn plus(self, add: i64) -> Val {
        let moved = |offset: i32| i32::try_from(i64::from(offset).checked_add(add)?).ok();
        let kind = match self.kind {
            Kind::Const(value) => Kind::Const(value.wrapping_add(add)),
            Kind::Frame(offset) => moved(offset).map_or(Kind::Top, Kind::Frame),
            Kind::Offset(offset) => moved(offset).map_or(Kind::Top, Kind::Offset),
            Kind::Narrow if add != 0 => return Val::TOP,
            Kind::Fresh(_) if add != 0 => Kind::Top,
            kind => kind,
        };
        Val { kind, ty: if kind == Kind::Top { 0 } else { self.ty }, ..self }
    }

    /// A sum of two values of which one may be a pointer.
    pub(crate) fn sum(self, other: Val) -> Val {
        if let Kind::Const(number) = other.kind {
            return self.plus(number);
        }
        if let Kind::Const(number) = self.kind {
            return other.plus(number);
        }
        Val {
            direct: self.pointers() | other.pointers(),
            deep: self.deep | other.deep,
            frame: self.frame || other.frame,
            ..Val::TOP
        }
    }

    /// A number that was computed from the value: it is no pointer itself, but may lead to one.
    pub(crate) fn mixed(self) -> Val {
        Val { deep: self.deep | self.pointers(), ..Val::TOP }
    }

    /// Whether the value is NULL or an error number.
    fn is_failure(&self) -> bool {
        matches!(self.kind, Kind::Const(-4095..=0)) && self.direct | self.deep == 0
    }

    /// The value where two ways of the code meet.
    pub(crate) fn join(self, other: Val) -> Val {
        if self == other {
            return self;
        }
        let (a, b) = (self, other);
        let mut kind = Kind::Top;
        let mut maybe = a.maybe || b.maybe;
        let mut ty = if a.ty == b.ty { a.ty } else { 0 };
        let pointer = |v: &Val| matches!(v.kind, Kind::Offset(_) | Kind::Fresh(_));
        if a.kind == b.kind {
            kind = a.kind;
            if matches!(kind, Kind::Offset(_)) && (a.direct != b.direct) {
                maybe = true;
                let one = a.direct == 0 || b.direct == 0;
                kind = if one && (a.direct | b.direct).count_ones() == 1 { kind } else { Kind::Top };
            } else if kind == Kind::Narrow && a.direct != b.direct {
                kind = Kind::Top;
            }
        } else if a.is_failure() && pointer(&b) {
            (kind, ty) = (b.kind, b.ty);
        } else if b.is_failure() && pointer(&a) {
            (kind, ty) = (a.kind, a.ty);
        } else {
            maybe = true;
            for (own, other) in [(&a, &b), (&b, &a)] {
                if matches!(own.kind, Kind::Offset(_)) && own.direct != 0 && other.direct == 0 {
                    kind = own.kind;
                }
            }
        }
        if kind == Kind::Top {
            ty = 0;
        }
        let narrow = |v: &Val| if kind == Kind::Narrow { v.direct } else { v.pointers() };
        Val {
            direct: narrow(&a) | narrow(&b),
            deep: a.deep | b.deep,
            ty,
            maybe: maybe || kind == Kind::Top,
            frame: a.frame || b.frame,
            kind,
        }
    }
}

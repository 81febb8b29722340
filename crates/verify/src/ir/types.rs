//! Types of LLVM IR and their layout on x86-64.

use std::collections::HashMap;
use std::rc::Rc;

/// A type. Structures with a name are in [`Types`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// No value.
    Void,
    /// An integer of this many bits.
    Int(u32),
    /// A floating-point number of this many bytes.
    Float(u64),
    /// A pointer.
    Pointer(Rc<Type>),
    /// An array.
    Array(u64, Rc<Type>),
    /// A vector.
    Vector(u64, Rc<Type>),
    /// A structure with a name.
    Named(Rc<str>),
    /// A structure without one: its fields, and whether it is packed.
    Literal(Rc<Vec<Type>>, bool),
    /// A function: result, parameters, whether more may follow.
    Function(Rc<Type>, Rc<Vec<Type>>, bool),
    /// A label, a token, metadata, or nothing known.
    Other,
}

/// The structures of a module.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// The fields of a structure by its name, and whether it is packed; `None` where only its name is known.
    pub named: HashMap<Rc<str>, Option<(Vec<Type>, bool)>>,
}

impl Type {
    /// The type that a pointer leads to.
    pub fn pointee(&self) -> Option<&Type> {
        match self {
            Type::Pointer(to) => Some(to),
            _ => None,
        }
    }

    /// The number of bits of an integer or a pointer.
    pub fn bits(&self) -> Option<u32> {
        match self {
            Type::Int(bits) if *bits <= 64 => Some(*bits),
            Type::Pointer(_) => Some(64),
            _ => None,
        }
    }
}

fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to.max(1)).saturating_mul(to.max(1))
}

impl Types {
    /// Size in bytes, and alignment; `None` where they are not known.
    pub fn layout(&self, kind: &Type) -> Option<(u64, u64)> {
        self.layout_within(kind, 64)
    }

    fn layout_within(&self, kind: &Type, depth: u32) -> Option<(u64, u64)> {
        let depth = depth.checked_sub(1)?;
        match kind {
            Type::Int(bits) => {
                let bytes = u64::from(*bits).div_ceil(8).next_power_of_two();
                Some((bytes, bytes.min(16)))
            }
            Type::Float(bytes) => Some((*bytes, *bytes)),
            Type::Pointer(_) => Some((8, 8)),
            Type::Array(count, of) => {
                let (size, align) = self.layout_within(of, depth)?;
                Some((size.checked_mul(*count)?, align))
            }
            Type::Vector(count, of) => {
                let (size, _) = self.layout_within(of, depth)?;
                let size = size.checked_mul(*count)?.checked_next_power_of_two()?;
                Some((size, size))
            }
            Type::Named(name) => {
                let (fields, packed) = self.named.get(name)?.as_ref()?;
                self.structure(fields, *packed, usize::MAX, depth).map(|(_, size, align)| (size, align))
            }
            Type::Literal(fields, packed) => {
                self.structure(fields, *packed, usize::MAX, depth).map(|(_, size, align)| (size, align))
            }
            Type::Void | Type::Function(..) | Type::Other => None,
        }
    }

    /// Offset of a field, and size and alignment of the whole.
    fn structure(&self, fields: &[Type], packed: bool, field: usize, depth: u32) -> Option<(u64, u64, u64)> {
        let (mut at, mut most, mut found) = (0u64, 1, 0);
        for (index, kind) in fields.iter().enumerate() {
            let (size, align) = self.layout_within(kind, depth)?;
            let align = if packed { 1 } else { align };
            at = round_up(at, align);
            if index == field {
                found = at;
            }
            at = at.checked_add(size)?;
            most = most.max(align);
        }
        Some((found, round_up(at, most), most))
    }

    /// Offset and type of a field or an element.
    pub fn step(&self, kind: &Type, index: u64) -> Option<(u64, Type)> {
        match kind {
            Type::Array(_, of) | Type::Vector(_, of) => {
                let (size, _) = self.layout(of)?;
                Some((size.wrapping_mul(index), (**of).clone()))
            }
            Type::Named(name) => {
                let (fields, packed) = self.named.get(name)?.as_ref()?;
                self.field(fields, *packed, index)
            }
            Type::Literal(fields, packed) => self.field(fields, *packed, index),
            _ => None,
        }
    }

    fn field(&self, fields: &[Type], packed: bool, index: u64) -> Option<(u64, Type)> {
        let index = usize::try_from(index).ok()?;
        let (offset, ..) = self.structure(fields, packed, index, 64)?;
        Some((offset, fields.get(index)?.clone()))
    }

    /// Every named structure inside a type, with its offset; arrays count for each of their elements, at most
    /// `limit` in all.
    pub fn inside(&self, kind: &Type, limit: usize) -> Vec<(u64, Rc<str>)> {
        let mut found = Vec::new();
        self.collect(kind, 0, limit, 32, &mut found);
        found
    }

    fn collect(&self, kind: &Type, at: u64, limit: usize, depth: u32, found: &mut Vec<(u64, Rc<str>)>) {
        if found.len() >= limit || depth == 0 {
            return;
        }
        let count = match kind {
            Type::Named(name) => {
                found.push((at, name.clone()));
                match self.named.get(name) {
                    Some(Some((fields, _))) => fields.len() as u64,
                    _ => 0,
                }
            }
            Type::Literal(fields, _) => fields.len() as u64,
            Type::Array(count, of)
                if matches!(**of, Type::Named(_) | Type::Literal(..) | Type::Array(..)) =>
            {
                *count
            }
            _ => 0,
        };
        for index in 0..count {
            if found.len() >= limit {
                return;
            }
            if let Some((offset, field)) = self.step(kind, index) {
                self.collect(&field, at + offset, limit, depth - 1, found);
            }
        }
    }
}

/// The name in C of a structure's name in the translation.
pub fn plain(name: &str) -> &str {
    let name = name.strip_prefix("struct.").or_else(|| name.strip_prefix("union.")).unwrap_or(name);
    match name.rsplit_once('.') {
        Some((front, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => front,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_as_the_abi_says() {
        let mut types = Types::default();
        let fields = vec![Type::Int(8), Type::Int(32), Type::Array(3, Rc::new(Type::Int(16))), Type::Int(64)];
        types.named.insert("s".into(), Some((fields.clone(), false)));
        types.named.insert("p".into(), Some((fields, true)));
        let named = |name: &str| Type::Named(name.into());
        assert_eq!(types.layout(&named("s")), Some((24, 8)));
        assert_eq!(types.layout(&named("p")), Some((19, 1)));
        assert_eq!(types.step(&named("s"), 3).map(|(at, _)| at), Some(16));
        assert_eq!(types.step(&named("p"), 2).map(|(at, _)| at), Some(5));
        assert_eq!(types.layout(&named("gone")), None);
    }

    #[test]
    fn a_type_within_itself_ends() {
        let mut types = Types::default();
        types.named.insert("s".into(), Some((vec![Type::Named("s".into())], false)));
        assert_eq!(types.layout(&Type::Named("s".into())), None);
        assert!(types.inside(&Type::Named("s".into()), 100).len() <= 100);
    }
}

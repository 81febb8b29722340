//! Questions about types.

use super::{Btf, Kind, MAX_DEPTH, RawType, TypeId};
use crate::bytes::u32_at;

/// A type, as far as calls depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// No value.
    Void,
    /// An integer, a boolean, a character or an enumeration.
    Int {
        /// Its width in bits.
        bits: u32,
        /// Whether it is signed.
        signed: bool,
    },
    /// A pointer, with what it points to.
    Ptr(Pointee),
    /// A struct or union by value.
    Aggregate {
        /// Its size in bytes.
        size: u64,
    },
    /// Floating point, or a type that could not be followed.
    Other,
}

/// What a pointer points to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointee {
    /// Size of the type in bytes; `None` where it is incomplete.
    pub size: Option<u64>,
    /// Whether the target is `const`.
    pub is_const: bool,
    /// Whether the target is `void`.
    pub is_void: bool,
    /// Whether the target is a function.
    pub is_func: bool,
    /// The type of that function, where BTF has it.
    pub func: Option<TypeId>,
    /// Name of the struct or union; `None` if it is neither or has no name.
    pub struct_name: Option<String>,
    /// Name of the struct or union that a pointer there leads to.
    pub inner: Option<String>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name; empty where BTF does not record it.
    pub name: String,
    /// Its type, as far as calls depend on it.
    pub ty: Type,
    /// Which argument register (0..=5) holds it, or its first part; `None` for those on the stack.
    pub register: Option<u8>,
}

/// The prototype of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proto {
    /// The parameters, without the `...`.
    pub params: Vec<Param>,
    /// Whether the parameters end in `...`.
    pub variadic: bool,
    /// The type of the result.
    pub result: Type,
    /// The names that the source has for that type, from the outermost `typedef` to an enumeration's own name; none where
    /// it has none.
    pub result_names: Vec<String>,
}

impl Proto {
    /// Puts parameters with their names into the registers that the kernel's calling convention (System V's)
    /// gives them.
    pub fn new(params: Vec<(String, Type)>, variadic: bool, result: Type) -> Proto {
        // A large result is returned through a pointer in the first register.
        let mut next = if matches!(result, Type::Aggregate { size } if size > 16) { 1 } else { 0 };
        let mut placed = |(name, ty): (String, Type)| {
            let words = match ty {
                Type::Aggregate { size: 1..=8 } => 1,
                Type::Aggregate { size: 9..=16 } => 2,
                Type::Int { bits: 65.., .. } => 2,
                Type::Aggregate { .. } | Type::Other => 0,
                _ => 1,
            };
            let register = (words > 0 && next + words <= 6).then_some(next as u8);
            if register.is_some() {
                next += words;
            }
            Param { name, ty, register }
        };
        let params = params.into_iter().map(&mut placed).collect();
        Proto { params, variadic, result, result_names: Vec::new() }
    }

    /// The same with names of the result's type.
    pub fn naming_result(self, result_names: Vec<String>) -> Proto {
        Proto { result_names, ..self }
    }
}

impl Btf {
    /// The struct or union with this name.
    pub fn struct_named(&self, name: &str) -> Option<TypeId> {
        self.named(name)
            .find(|&id| self.raw(id).is_some_and(|t| matches!(t.kind, Kind::Struct | Kind::Union)))
    }

    /// Follows typedefs and qualifiers; `None` where their chain is too long or damaged.
    pub fn resolve(&self, mut id: TypeId) -> Option<TypeId> {
        for _ in 0..MAX_DEPTH {
            match self.raw(id) {
                Some(t) if is_modifier(t.kind) => id = t.value,
                Some(_) => return Some(id),
                None => return (id == 0).then_some(0),
            }
        }
        None
    }

    /// Size in bytes of a complete type; `None` for all others.
    pub fn size_of(&self, id: TypeId) -> Option<u64> {
        let mut id = id;
        let mut count: u64 = 1;
        for _ in 0..MAX_DEPTH {
            let t = self.raw(self.resolve(id)?)?;
            let size = match t.kind {
                Kind::Ptr => 8,
                Kind::Array => {
                    count = count.checked_mul(u64::from(u32_at(t.extra, 8)?))?;
                    id = u32_at(t.extra, 0)?;
                    continue;
                }
                Kind::Int
                | Kind::Struct
                | Kind::Union
                | Kind::Enum
                | Kind::Enum64
                | Kind::Float
                | Kind::DataSec => u64::from(t.value),
                _ => return None,
            };
            return size.checked_mul(count);
        }
        None
    }

    /// Byte offset of a member. `path` may be dotted (`a.b`), may reach into anonymous structs and unions,
    /// and may index arrays (`mem[2].base`). `None` where absent, or a bitfield that does not begin at a
    /// byte.
    pub fn member_offset(&self, structure: &str, path: &str) -> Option<u64> {
        Some(self.member(self.struct_named(structure)?, path)?.0)
    }

    /// Byte offset and type of a member; the path is that of [`Btf::member_offset`].
    pub fn member(&self, structure: TypeId, path: &str) -> Option<(u64, TypeId)> {
        let mut id = structure;
        let mut offset = 0u64;
        for part in path.split('.') {
            let (name, indices) = part.split_once('[').map_or((part, None), |(n, rest)| (n, Some(rest)));
            let mut budget = 10_000;
            let (bits, member) = self.find_member(self.resolve(id)?, name, 0, &mut budget)?;
            if bits % 8 != 0 {
                return None;
            }
            offset = offset.checked_add(bits / 8)?;
            id = member;
            for index in indices.into_iter().flat_map(|rest| rest.split('[')) {
                let index: u64 = index.strip_suffix(']')?.parse().ok()?;
                let array = self.raw(self.resolve(id)?)?;
                if array.kind != Kind::Array || index >= u64::from(u32_at(array.extra, 8)?) {
                    return None;
                }
                id = u32_at(array.extra, 0)?;
                offset = offset.checked_add(self.size_of(id)?.checked_mul(index)?)?;
            }
        }
        Some((offset, id))
    }

    /// The byte that holds the first bit of a member, which may be a bitfield. The member is that of a
    /// structure, or of what lies in it without a name.
    pub fn byte_of_bit(&self, structure: &str, name: &str) -> Option<u64> {
        let mut budget = 10_000;
        Some(self.find_member(self.struct_named(structure)?, name, 0, &mut budget)?.0 / 8)
    }

    fn find_member(&self, id: TypeId, name: &str, depth: u32, budget: &mut u32) -> Option<(u64, TypeId)> {
        let t = self.raw(id)?;
        if depth > 16 || !matches!(t.kind, Kind::Struct | Kind::Union) {
            return None;
        }
        for member in t.extra.chunks_exact(12) {
            *budget = budget.checked_sub(1)?;
            let (member_name, ty, place) = (u32_at(member, 0)?, u32_at(member, 4)?, u32_at(member, 8)?);
            let bits = u64::from(if t.flag { place & 0xff_ffff } else { place });
            let found = if self.string(member_name) == Some(b"") {
                let inner = self.resolve(ty)?;
                self.find_member(inner, name, depth + 1, budget).map(|(offset, ty)| (bits + offset, ty))
            } else {
                (self.string(member_name) == Some(name.as_bytes())).then_some((bits, ty))
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Value of an enumerator, in any enumeration.
    pub fn enum_value(&self, name: &str) -> Option<i64> {
        (1..self.end_id()).filter_map(|id| self.raw(id)).find_map(|t| self.enumerator(t, name))
    }

    /// Value of an enumerator of the named enumeration.
    pub fn enum_value_in(&self, enumeration: &str, name: &str) -> Option<i64> {
        self.named(enumeration).filter_map(|id| self.raw(id)).find_map(|t| self.enumerator(t, name))
    }

    fn enumerator(&self, t: RawType<'_>, name: &str) -> Option<i64> {
        let width = match t.kind {
            Kind::Enum => 8,
            Kind::Enum64 => 12,
            _ => return None,
        };
        let item = t
            .extra
            .chunks_exact(width)
            .find(|item| u32_at(item, 0).and_then(|at| self.string(at)) == Some(name.as_bytes()))?;
        let low = u32_at(item, 4)?;
        Some(match (width, t.flag) {
            (12, _) => (u64::from(u32_at(item, 8)?) << 32 | u64::from(low)) as i64,
            (_, true) => i64::from(low as i32),
            (_, false) => i64::from(low),
        })
    }

    /// The prototype of a function. `None` for functions that are inlined everywhere, or have several
    /// prototypes.
    pub fn func_proto(&self, name: &str) -> Option<Proto> {
        let id = self.named(name).find(|&id| self.raw(id).is_some_and(|t| t.kind == Kind::Func))?;
        self.proto(self.raw(id)?.value)
    }

    /// The prototype behind a type number of a function type.
    pub fn proto(&self, id: TypeId) -> Option<Proto> {
        let t = self.raw(id)?;
        if t.kind != Kind::FuncProto {
            return None;
        }
        let (mut params, mut variadic) = (Vec::new(), false);
        for item in t.extra.chunks_exact(8) {
            let (name, ty) = (u32_at(item, 0)?, u32_at(item, 4)?);
            if ty == 0 {
                variadic = true;
                continue;
            }
            let name = self.string(name).map(|n| String::from_utf8_lossy(n).into_owned()).unwrap_or_default();
            params.push((name, self.type_of(ty)));
        }
        Some(Proto::new(params, variadic, self.type_of(t.value)).naming_result(self.names_of(t.value)))
    }

    /// Whether a name is one that a result's type can have: a typedef's or an enumeration's.
    pub fn names_result(&self, name: &str) -> bool {
        self.named(name)
            .filter_map(|id| self.raw(id))
            .any(|t| matches!(t.kind, Kind::Typedef | Kind::Enum | Kind::Enum64))
    }

    /// The names of typedefs on the way to a type, and that of the enumeration at its end.
    fn names_of(&self, mut id: TypeId) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..MAX_DEPTH {
            let Some(t) = self.raw(id) else { break };
            let named = matches!(t.kind, Kind::Typedef | Kind::Enum | Kind::Enum64) && t.name != 0;
            names.extend(named.then(|| self.name_of(t).to_owned()));
            if !is_modifier(t.kind) {
                break;
            }
            id = t.value;
        }
        names
    }

    /// The function type of a function, by its name.
    pub fn func_type(&self, name: &str) -> Option<TypeId> {
        let id = self.named(name).find(|&id| self.raw(id).is_some_and(|t| t.kind == Kind::Func))?;
        Some(self.raw(id)?.value)
    }

    /// The types of the parameters of a function type, without the `...`, and of its result.
    pub fn signature(&self, id: TypeId) -> Option<(Vec<TypeId>, TypeId)> {
        let t = self.raw(id).filter(|t| t.kind == Kind::FuncProto)?;
        let types = t.extra.chunks_exact(8).filter_map(|item| u32_at(item, 4));
        Some((types.filter(|ty| *ty != 0).collect(), t.value))
    }

    /// What a pointer type points to, without typedefs and qualifiers; `None` where the type is no pointer.
    pub fn pointee_type(&self, pointer: TypeId) -> Option<TypeId> {
        let t = self.raw(self.resolve(pointer)?).filter(|t| t.kind == Kind::Ptr)?;
        self.resolve(t.value)
    }

    /// Whether a type is an integer, a boolean, a character, an enumeration or a floating-point number.
    pub fn is_number(&self, id: TypeId) -> bool {
        let kind = self.resolve(id).and_then(|id| self.raw(id)).map(|t| t.kind);
        matches!(kind, Some(Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Float))
    }

    /// Whether a type is a function type.
    pub fn is_function(&self, id: TypeId) -> bool {
        self.raw(id).is_some_and(|t| t.kind == Kind::FuncProto)
    }

    /// The prototype of the functions to which a type points.
    pub fn pointed_proto(&self, pointer: TypeId) -> Option<Proto> {
        let pointer = self.raw(self.resolve(pointer)?).filter(|t| t.kind == Kind::Ptr)?;
        self.proto(self.resolve(pointer.value)?)
    }

    /// The first bit of a bitfield, and its number of bits. The member is that of a structure, or of what
    /// lies in it without a name; dots lead into members. `None` where it is no bitfield.
    pub fn bits(&self, structure: TypeId, name: &str) -> Option<(u64, u64)> {
        if let Some((outer, name)) = name.rsplit_once('.') {
            let (offset, outer) = self.member(structure, outer)?;
            let (first, bits) = self.bits(outer, name)?;
            return Some((offset * 8 + first, bits));
        }
        let mut budget = 10_000;
        self.find_bits(self.resolve(structure)?, name, 0, &mut budget)
    }

    fn find_bits(&self, id: TypeId, name: &str, depth: u32, budget: &mut u32) -> Option<(u64, u64)> {
        let t = self.raw(id).filter(|t| matches!(t.kind, Kind::Struct | Kind::Union) && depth <= 16)?;
        for member in t.extra.chunks_exact(12) {
            *budget = budget.checked_sub(1)?;
            let (member_name, ty, place) = (u32_at(member, 0)?, u32_at(member, 4)?, u32_at(member, 8)?);
            let (first, bits) = match t.flag {
                true => (u64::from(place & 0xff_ffff), u64::from(place >> 24)),
                false => (u64::from(place), 0),
            };
            match self.string(member_name) {
                Some(b"") => {
                    let inner = self.resolve(ty).and_then(|ty| self.find_bits(ty, name, depth + 1, budget));
                    if let Some((inner, bits)) = inner {
                        return Some((first + inner, bits));
                    }
                }
                own if own == Some(name.as_bytes()) => return (bits > 0).then_some((first, bits)),
                _ => {}
            }
        }
        None
    }

    /// The pointers to functions in a structure and in the structures that lie in it: where each is, and the function's type.
    pub fn function_slots(&self, structure: TypeId) -> Vec<(u64, TypeId)> {
        let mut slots = Vec::new();
        let mut budget = 10_000;
        self.add_function_slots(structure, 0, 0, &mut budget, &mut slots);
        slots
    }

    fn add_function_slots(
        &self,
        id: TypeId,
        base: u64,
        depth: u32,
        budget: &mut u32,
        slots: &mut Vec<(u64, TypeId)>,
    ) -> Option<()> {
        let t = self.raw(self.resolve(id)?).filter(|_| depth <= 16)?;
        let pointed = |value| self.resolve(value).filter(|id| self.is_function(*id));
        match t.kind {
            Kind::Ptr => slots.extend(pointed(t.value).map(|function| (base, function))),
            Kind::Struct | Kind::Union => {
                for member in t.extra.chunks_exact(12) {
                    *budget = budget.checked_sub(1)?;
                    let (ty, place) = (u32_at(member, 4)?, u32_at(member, 8)?);
                    let bits = if t.flag { place & 0xff_ffff } else { place };
                    self.add_function_slots(ty, base + u64::from(bits / 8), depth + 1, budget, slots);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn type_of(&self, id: TypeId) -> Type {
        let Some(id) = self.resolve(id) else { return Type::Other };
        let Some(t) = self.raw(id) else { return Type::Void };
        match t.kind {
            Kind::Int => {
                let encoding = u32_at(t.extra, 0).unwrap_or(0);
                Type::Int { bits: t.value.saturating_mul(8), signed: encoding >> 24 & 1 != 0 }
            }
            // An enumeration is no number that counts from below 0, though some of its values may be negative.
            Kind::Enum | Kind::Enum64 => Type::Int { bits: t.value.saturating_mul(8), signed: false },
            Kind::Ptr => Type::Ptr(self.pointee(t.value)),
            Kind::Struct | Kind::Union => Type::Aggregate { size: u64::from(t.value) },
            _ => Type::Other,
        }
    }

    fn pointee(&self, mut id: TypeId) -> Pointee {
        let mut pointee = Pointee::default();
        for _ in 0..MAX_DEPTH {
            let Some(t) = self.raw(id) else {
                pointee.is_void = id == 0;
                return pointee;
            };
            match t.kind {
                Kind::Const => pointee.is_const = true,
                kind if is_modifier(kind) => {}
                // A constant array is an array of constants.
                Kind::Array => pointee.size = pointee.size.or_else(|| self.size_of(id)),
                Kind::FuncProto => {
                    (pointee.is_func, pointee.func) = (true, Some(id));
                    return pointee;
                }
                kind => {
                    pointee.size = pointee.size.or_else(|| self.size_of(id));
                    if matches!(kind, Kind::Struct | Kind::Union | Kind::Fwd) && t.name != 0 {
                        pointee.struct_name = Some(self.name_of(t).to_owned());
                    }
                    if kind == Kind::Ptr {
                        let inner = self.resolve(t.value).and_then(|id| self.raw(id));
                        let inner = inner.filter(|t| {
                            matches!(t.kind, Kind::Struct | Kind::Union | Kind::Fwd) && t.name != 0
                        });
                        pointee.inner = inner.map(|t| self.name_of(t).to_owned());
                    }
                    return pointee;
                }
            }
            id = if t.kind == Kind::Array { u32_at(t.extra, 0).unwrap_or(0) } else { t.value };
        }
        pointee
    }
}

fn is_modifier(kind: Kind) -> bool {
    matches!(kind, Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag)
}

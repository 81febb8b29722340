//! Types of functions, as far as calls by pointer tell them apart.

use guardrail_binfmt::btf::{Proto, Type};

/// The type of functions of a prototype, as far as calls can differ.
pub(super) fn outline(proto: &Proto) -> String {
    let one = |ty: &Type| match ty {
        Type::Void => "void".to_owned(),
        Type::Int { bits, .. } => format!("int{bits}"),
        Type::Ptr(to) if to.is_func => "function *".to_owned(),
        Type::Ptr(to) if to.is_void => "void *".to_owned(),
        Type::Ptr(to) => format!("{} *", to.struct_name.as_deref().unwrap_or("other")),
        Type::Aggregate { size } => format!("aggregate{size}"),
        Type::Other => "other".to_owned(),
    };
    let mut params: Vec<String> = proto.params.iter().map(|param| one(&param.ty)).collect();
    params.extend(proto.variadic.then(|| "...".to_owned()));
    format!("{} ({})", one(&proto.result), params.join(", "))
}

/// The number of a type of functions; never 0.
pub(super) fn number(proto: &Proto) -> u32 {
    crc32fast::hash(outline(proto).as_bytes()).max(1)
}

/// Whether two prototypes are of one function type, as far as calls can differ.
pub(super) fn same(a: &Proto, b: &Proto) -> bool {
    outline(a) == outline(b)
}

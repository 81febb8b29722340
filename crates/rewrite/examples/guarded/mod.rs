//! A border with an action before and after every call between a module and the kernel. The actions serve no purpose but
//! that.

use guardrail_abi::symbol;
use guardrail_rewrite::Object;
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::border::{Action, Interposition, Value, Wrapper};

/// Prefixes of symbols that are no functions, but parts of a call or a return.
const PARTS: [&str; 3] = ["__x86_", "__SCT__", "__fentry__"];
/// The functions of the runtime that thunks call.
const RUNTIME: [&str; 17] = [
    symbol::TABLE,
    symbol::LOOPS,
    symbol::FRAMES,
    symbol::WRITE_SLOW,
    symbol::RANGE_SLOW,
    symbol::PERCPU_SLOW,
    symbol::CALL_SLOW,
    symbol::LOOP_SLOW,
    symbol::FRAME_SLOW,
    symbol::BEYOND_SLOW,
    symbol::PORT_SLOW,
    symbol::ENTER,
    symbol::LEAVE,
    symbol::DO_REQUIRE_WRITE,
    symbol::DO_REVOKE,
    symbol::MODULE_ENTER,
    symbol::MODULE_LEAVE,
];

/// A runtime that exports what such modules need, without versions.
pub fn runtime() -> Exports {
    let symbols = RUNTIME.iter().map(|name| ((*name).to_owned(), None)).collect();
    Exports { symbols, ..Exports::default() }
}

/// An action before and after each call of an import.
pub fn border(object: &Object) -> Interposition {
    let mut border = Interposition::default();
    for symbol in object.symbols.iter().filter(|symbol| symbol.undefined() && !symbol.name.is_empty()) {
        if PARTS.iter().any(|part| symbol.name.starts_with(part)) {
            continue;
        }
        let require = Action::RequireWrite { pointer: Value::Arg(0), size: Value::Const(0) };
        let revoke = Action::Revoke { pointer: Value::Result, size: Value::Const(0) };
        let wrapper =
            Wrapper { before: vec![require.into()], after: vec![revoke.into()], ..Wrapper::default() };
        border.imports.insert(symbol.name.clone(), wrapper);
    }
    border
}

//! Guards all modules below folders, with an action before and after every call between them and the kernel.
//! Prints which modules could not be guarded: `cargo run --release -p guardrail-rewrite --example thunks --
//! FOLDER…`.
//! The results are verified; they serve no other purpose.

mod modules;

use guardrail_abi::symbol;
use guardrail_binfmt::module::unpack;
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::border::{Action, Done, Interposition, Value, Wrapper};
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Counts, Object, RewriteError, rewrite};

/// Prefixes of symbols that are no functions, but parts of a call or a return.
const PARTS: [&str; 3] = ["__x86_", "__SCT__", "__fentry__"];
/// The functions of the runtime that thunks call.
const RUNTIME: [&str; 15] = [
    symbol::TABLE,
    symbol::LOOPS,
    symbol::FRAMES,
    symbol::WRITE_SLOW,
    symbol::RANGE_SLOW,
    symbol::PERCPU_SLOW,
    symbol::CALL_SLOW,
    symbol::LOOP_SLOW,
    symbol::FRAME_SLOW,
    symbol::ENTER,
    symbol::LEAVE,
    symbol::DO_REQUIRE_WRITE,
    symbol::DO_REVOKE,
    symbol::MODULE_ENTER,
    symbol::MODULE_LEAVE,
];

fn main() {
    let symbols = RUNTIME.iter().map(|name| ((*name).to_owned(), None)).collect();
    let runtime = Exports { symbols, ..Exports::default() };
    let (mut sums, mut bytes) = ([0; 5], (0, 0));
    modules::each("guarded", |name, data| {
        let (counts, done) = guard(name, data, &runtime)?;
        bytes = (bytes.0 + counts.old_bytes, bytes.1 + counts.new_bytes);
        let numbers = [done.imports.len(), done.calls, done.entries.len(), done.pointers, done.missed.len()];
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
        Ok(())
    });
    let [imports, calls, entries, pointers, missed] = sums;
    println!("code: {} bytes before, {} after, without thunks", bytes.0, bytes.1);
    println!(
        "{imports} imports, {calls} calls of them, {missed} called from code that the kernel replaces as well"
    );
    println!("{entries} entries, {pointers} pointers to them");
}

fn guard(name: &str, data: Vec<u8>, runtime: &Exports) -> Result<(Counts, Done), RewriteError> {
    let data = unpack(name, data)?;
    let object = Object::read(name, &data)?;
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
    let mut checks = Checks::new(1).guarded("module", runtime).interposing(border);
    let rewritten = rewrite(name, data, &mut [&mut checks])?;
    Ok((rewritten.counts, checks.done))
}

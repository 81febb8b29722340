//! Functions that are made by hand.

use crate::program::Program;
use crate::summary::{Deep, Extent, Summary};
use std::sync::Arc;

/// What the first of some functions does.
fn first(code: &[(&str, &[u8])], imports: &[(usize, u64, &str)]) -> Arc<Summary> {
    Arc::clone(&Program::of_code(code, imports)[code[0].0])
}

/// What a function does that calls nothing.
fn alone(code: &[u8]) -> Arc<Summary> {
    first(&[("f", code)], &[])
}

fn range(low: i32, high: i32) -> Extent {
    Extent { range: Some((low, high)), ..Extent::default() }
}

#[test]
fn a_store_is_a_write_and_keeps_what_it_stores() {
    // mov [rdi+8],rsi; ret
    let f = alone(&[0x48, 0x89, 0x77, 0x08, 0xc3]);
    assert_eq!(f.args[0].write, range(8, 16));
    assert!(f.args[1].keep && !f.args[0].keep && f.args[1].write.is_empty());
    assert_eq!(f.sites[0].write.map(|site| site.offset), Some(0));
}

#[test]
fn reading_is_no_writing() {
    // mov rax,[rdi]; mov ecx,[rax]; ret
    let f = alone(&[0x48, 0x8b, 0x07, 0x8b, 0x08, 0xc3]);
    assert!(f.args[0].read && f.args[0].write.is_empty());
    assert_eq!(f.args[0].deep, Deep::READ);
}

#[test]
fn writes_through_loaded_pointers_are_found() {
    // mov rax,[rdi]; mov byte [rax],0; ret
    let f = alone(&[0x48, 0x8b, 0x07, 0xc6, 0x00, 0x00, 0xc3]);
    assert!(f.args[0].deep.any(Deep::WRITE) && f.args[0].write.is_empty());
}

#[test]
fn a_fill_is_as_long_as_its_argument() {
    // mov rcx,rsi; xor eax,eax; rep stosb; ret
    let f = alone(&[0x48, 0x89, 0xf1, 0x31, 0xc0, 0xf3, 0xaa, 0xc3]);
    assert_eq!(f.args[0].write, Extent { counted: Some((1, 1)), ..Extent::default() });
    // mov ecx,4; rep stosq; ret
    let f = alone(&[0xb9, 4, 0, 0, 0, 0xf3, 0x48, 0xab, 0xc3]);
    assert_eq!(f.args[0].write, range(0, 32));
}

#[test]
fn a_loop_over_a_pointer_has_no_bound() {
    // again: mov byte [rdi],0; inc rdi; cmp rdi,rsi; jne again; ret
    let f = alone(&[0xc6, 0x07, 0, 0x48, 0xff, 0xc7, 0x48, 0x39, 0xf7, 0x75, 0xf5, 0xc3]);
    assert!(f.args[0].write.unbounded);
}

#[test]
fn a_callee_writes_for_its_caller() {
    // lea rdi,[rdi+16]; mov esi,3; jmp memset_like; the callee: mov rcx,rsi; rep stosb; ret
    let caller = [0x48, 0x8d, 0x7f, 0x10, 0xbe, 3, 0, 0, 0, 0xe9, 0xf2, 0x0f, 0, 0];
    let f = first(&[("f", &caller), ("g", &[0x48, 0x89, 0xf1, 0xf3, 0xaa, 0xc3])], &[]);
    assert_eq!(f.args[0].write, range(16, 19));
}

#[test]
fn models_of_the_tables_stand_for_imports() {
    // mov rdx,rcx; call memcpy; ret
    let f = first(&[("f", &[0x48, 0x89, 0xca, 0xe8, 0, 0, 0, 0, 0xc3])], &[(0, 4, "memcpy")]);
    assert_eq!(f.args[0].write, Extent { counted: Some((3, 1)), ..Extent::default() });
    assert!(f.args[1].read);
}

#[test]
fn a_release_on_all_ways_but_null_is_one() {
    // test rdi,rdi; je out; call kfree; out: ret
    let always = [0x48, 0x85, 0xff, 0x74, 0x05, 0xe8, 0, 0, 0, 0, 0xc3];
    let f = first(&[("f", &always)], &[(0, 6, "kfree")]);
    assert_eq!((f.args[0].free != 0, f.freed), (true, 1));
    // test esi,esi; je out; call kfree; out: ret
    let sometimes = [0x85, 0xf6, 0x74, 0x05, 0xe8, 0, 0, 0, 0, 0xc3];
    let f = first(&[("f", &sometimes)], &[(0, 5, "kfree")]);
    assert_eq!((f.args[0].free != 0, f.freed), (true, 0));
}

#[test]
fn what_lies_in_the_frame_is_reached_through_it() {
    // sub rsp,16; mov [rsp],rdi; mov rdi,rsp; call g; add rsp,16; ret. g: mov rax,[rdi]; mov [rax],esi; ret
    let caller = [
        0x48, 0x83, 0xec, 16, 0x48, 0x89, 0x3c, 0x24, 0x48, 0x89, 0xe7, 0xe8, 0xf0, 0x0f, 0, 0, 0x48, 0x83,
        0xc4, 16, 0xc3,
    ];
    let f = first(&[("f", &caller), ("g", &[0x48, 0x8b, 0x07, 0x89, 0x30, 0xc3])], &[]);
    assert!(f.args[0].write.unbounded, "{f:?}");
}

#[test]
fn a_spilled_argument_is_still_one() {
    // push rbx; mov rbx,rdi; call <unknown>; mov dword [rbx+4],1; pop rbx; ret
    let code = [0x53, 0x48, 0x89, 0xfb, 0xe8, 0, 0, 0, 0, 0xc7, 0x43, 4, 1, 0, 0, 0, 0x5b, 0xc3];
    let f = first(&[("f", &code)], &[(0, 5, "__fentry__")]);
    assert_eq!(f.args[0].write, range(4, 8));
    // push rdi; call <…>; pop rax; mov byte [rax],0; ret
    let f = first(&[("f", &[0x57, 0xe8, 0, 0, 0, 0, 0x58, 0xc6, 0, 0, 0xc3])], &[(0, 2, "msleep")]);
    assert_eq!(f.args[0].write, range(0, 1));
}

#[test]
fn what_assembly_calls_leaves_arguments_alone() {
    // call __fentry__; mov byte [rdi],0; ret
    let f = first(&[("f", &[0xe8, 0, 0, 0, 0, 0xc6, 0x07, 0, 0xc3])], &[(0, 1, "__fentry__")]);
    assert_eq!(f.args[0].write, range(0, 1));
}

#[test]
fn arguments_of_unknown_code_escape() {
    // mov rax,[rsi]; jmp __x86_indirect_thunk_rax
    let f = first(&[("f", &[0x48, 0x8b, 0x06, 0xe9, 0, 0, 0, 0])], &[(0, 4, "__x86_indirect_thunk_rax")]);
    assert!(f.args[0].escape && f.args[1].deep.any(Deep::CALL), "{f:?}");
    // A function that is an argument gets what its provider passes: jmp __x86_indirect_thunk_rsi
    let f = first(&[("f", &[0xe9, 0, 0, 0, 0])], &[(0, 1, "__x86_indirect_thunk_rsi")]);
    assert!(!f.args[0].escape && f.args[1].call, "{f:?}");
}

#[test]
fn functions_that_call_each_other_are_followed() {
    // f: mov byte [rdi],0; jmp g. g: lea rdi,[rdi+1]; jmp f
    let f = [0xc6, 0x07, 0, 0xe9, 0xf8, 0x0f, 0, 0];
    let g = [0x48, 0x8d, 0x7f, 1, 0xe9, 0xf7, 0xef, 0xff, 0xff];
    let f = first(&[("f", &f), ("g", &g)], &[]);
    assert!(f.args[0].write.unbounded && f.unknown.is_none(), "{f:?}");
}

#[test]
fn an_unknown_import_is_not_harmless() {
    // jmp somewhere
    let f = first(&[("f", &[0xe9, 0, 0, 0, 0])], &[(0, 1, "somewhere")]);
    assert!(f.args[0].escape && f.args[5].escape);
}

#[test]
fn any_bytes_give_a_summary() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 1..400 {
        let mut byte = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        };
        let code: Vec<Vec<u8>> = (0..3).map(|_| (0..length).map(|_| byte()).collect()).collect();
        let functions = [("f", &code[0][..]), ("g", &code[1]), ("h", &code[2])];
        assert_eq!(Program::of_code(&functions, &[]).len(), 3);
    }
}

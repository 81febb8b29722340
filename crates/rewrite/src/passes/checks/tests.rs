//! What is put in front of instructions of each kind.

use crate::engine::object::{Object, SectionIndex, Symbol, reloc};
use crate::passes::checks::{Checks, Stores};
use crate::passes::thunks::SECTION;
use crate::tests::{Module, TEXT, listing};
use object::elf;

/// The checked code of a module, its thunks, and what was counted.
fn checked(module: &Module) -> (String, String, Stores) {
    let mut checks = Checks::new(2);
    let rewritten = module.rewrite(&mut checks).unwrap();
    let object = Object::read("result", &rewritten.file).unwrap();
    let thunks = listing(&object, object.section(SECTION).unwrap());
    (listing(&object, TEXT), thunks, checks.stores)
}

fn refusal(code: &[u8]) -> String {
    Module::new(code).rewrite(&mut Checks::new(1)).unwrap_err().to_string()
}

fn import(module: &mut Module, name: &str) -> usize {
    let other = module.0.symbols[4].clone();
    module.0.symbols.push(Symbol { name: name.into(), ..other });
    module.0.symbols.len() - 1
}

#[test]
fn stores_of_a_block_share_a_check() {
    // mov [rdi+8],rsi; mov dword [rdi+16],1; mov rcx,[rsi]; mov byte [rdi+22],2; mov [rdx],rcx; mov rdi,rdx; mov qword [rdi],3; ret
    let code = [
        0x48, 0x89, 0x77, 0x08, 0xc7, 0x47, 0x10, 0x01, 0x00, 0x00, 0x00, 0x48, 0x8b, 0x0e, 0xc6, 0x47, 0x16,
        0x02, 0x48, 0x89, 0x0a, 0x48, 0x89, 0xd7, 0x48, 0xc7, 0x07, 0x03, 0x00, 0x00, 0x00, 0xc3,
    ];
    let (text, _, stores) = checked(&Module::new(&code));
    assert_eq!((stores.checked, stores.merged), (5, 2));
    insta::assert_snapshot!(text);
}

#[test]
fn calls_by_pointer_are_checked() {
    // call rax; call rbx; ret
    let (text, thunks, stores) = checked(&Module::new(&[0xff, 0xd0, 0xff, 0xd3, 0xc3]));
    assert_eq!(stores.calls, 2);
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(thunks);
    // cs call <thunk>; jmp <thunk>, as modules of today do it
    let mut module = Module::new(&[0x2e, 0xe8, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
    let (first, second) =
        (import(&mut module, "__x86_indirect_thunk_rbx"), import(&mut module, "__x86_indirect_thunk_r11"));
    module.reloc(TEXT, 2, reloc::PLT32, first, -4);
    module.reloc(TEXT, 7, reloc::PLT32, second, -4);
    insta::assert_snapshot!(checked(&module).0);
    // je <thunk>; ret
    let mut module = Module::new(&[0x0f, 0x84, 0, 0, 0, 0, 0xc3]);
    let thunk = import(&mut module, "__x86_indirect_thunk_rax");
    module.reloc(TEXT, 2, reloc::PLT32, thunk, -4);
    let error = module.rewrite(&mut Checks::new(1)).unwrap_err().to_string();
    assert!(error.contains("on a condition"), "{error}");
    // call [rdi+8]; ret: between the check and the call the memory could change.
    let error = Module::new(&[0xff, 0x57, 0x08, 0xc3]).rewrite(&mut Checks::new(1)).unwrap_err().to_string();
    assert!(error.contains("takes the address of a function from memory"), "{error}");
    // call pv_ops(%rip); ret: the kernel's own table, in memory that it protects.
    let mut module = Module::new(&[0xff, 0x15, 0, 0, 0, 0, 0xc3]);
    let table = import(&mut module, "pv_ops");
    module.reloc(TEXT, 2, reloc::PC32, table, -4);
    assert_eq!(checked(&module).2.calls, 0);
}

#[test]
fn loops_count() {
    // 1: mov [rdi],rcx; dec rcx; jne 1b; 2: dec edx; jne 2b; ret
    let code = [0x48, 0x89, 0x0f, 0x48, 0xff, 0xc9, 0x75, 0xf8, 0xff, 0xca, 0x75, 0xfc, 0xc3];
    let (text, thunks, stores) = checked(&Module::new(&code));
    assert_eq!((stores.loops, stores.checked), (2, 1));
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(thunks);
    // A loop that carries a flag around does not count: 1: adc eax,edx; dec rcx; jne 1b; ret
    assert_eq!(checked(&Module::new(&[0x11, 0xd0, 0x48, 0xff, 0xc9, 0x75, 0xf9, 0xc3])).2.loops, 0);
}

#[test]
fn functions_that_come_back_to_themselves_look_at_the_stack() {
    // call f; ret
    let (text, thunks, stores) = checked(&Module::new(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]));
    assert_eq!(stores.recursive, 1);
    insta::assert_snapshot!(text);
    assert!(thunks.contains("guardrail_loop_slow"), "{thunks}");
    // f: call g; ret; g: jmp f, and the same where g returns instead
    for (g, wanted) in [([0xe9, 0xf5, 0xff, 0xff, 0xff], 2), ([0xc3, 0x90, 0x90, 0x90, 0x90], 0)] {
        let mut module = Module::new(&[[0xe8, 1, 0, 0, 0, 0xc3].as_slice(), &g].concat());
        let g = Symbol { name: "g".into(), value: 6, size: 5, ..module.0.symbols[3].clone() };
        module.0.symbols[3].size = 6;
        module.0.symbols.push(g);
        assert_eq!(checked(&module).2.recursive, wanted);
    }
}

#[test]
fn a_jump_that_the_kernel_patches_falls_through_as_well() {
    // mov r11,rdx; mov [rdi],rsi; jmp 1f (by a key); mov rax,r11; 1: ret
    let code = [0x49, 0x89, 0xd3, 0x48, 0x89, 0x37, 0xeb, 0x03, 0x4c, 0x89, 0xd8, 0xc3];
    let mut module = Module::new(&code);
    assert!(checked(&module).0.contains("lea r11"));
    module.table("__jump_table", elf::SHF_WRITE, &[0; 16], &[(0, 6), (4, 11)]);
    assert!(!checked(&module).0.contains("lea r11"));
}

#[test]
fn an_index_stays_in_the_array_that_the_operand_names() {
    // mov qword [array+rax*8],1; ret: in front of the array may lie what code that counts from 1 names.
    let elements = |addend, size| {
        let mut module = Module::new(&[0x48, 0xc7, 0x04, 0xc5, 0, 0, 0, 0, 1, 0, 0, 0, 0xc3]);
        module.symbol("array", SectionIndex::In(3), 16, size, elf::STT_OBJECT);
        module.reloc(TEXT, 4, reloc::ABS32S, 2, addend);
        let (text, _, stores) = checked(&module);
        assert_eq!(stores.checked, 1);
        (text, stores.elements)
    };
    let (text, found) = elements(16, 32);
    assert_eq!(found, 1);
    insta::assert_snapshot!(text);
    assert_eq!((elements(8, 32).1, elements(24, 32).1, elements(16, 8).1, elements(16, 30).1), (0, 0, 0, 0));
}

#[test]
fn own_variables_are_looked_up_as_others() {
    // mov qword [rip+variable],1; ret
    let mut module = Module::new(&[0x48, 0xc7, 0x05, 0, 0, 0, 0, 1, 0, 0, 0, 0xc3]);
    module.reloc(TEXT, 3, reloc::PC32, 2, -8);
    assert_eq!(checked(&module).2.checked, 1);
}

#[test]
fn string_instructions_that_repeat_ask_for_the_range() {
    // rep stosq; rep movsb; stosd; test rax,rax; rep stosb; je 1f; nop; 1: ret
    let code = [0xf3, 0x48, 0xab, 0xf3, 0xa4, 0xab, 0x48, 0x85, 0xc0, 0xf3, 0xaa, 0x74, 0x01, 0x90, 0xc3];
    let (text, thunks, stores) = checked(&Module::new(&code));
    assert_eq!((stores.checked, stores.strings), (4, 3));
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(thunks);
    // With counts of 32 bits nothing is known: addr32 rep stosb; ret
    assert!(refusal(&[0x67, 0xf3, 0xaa, 0xc3]).contains("whole registers"));
}

#[test]
fn a_bit_by_number_is_looked_up_where_it_is() {
    // bts [rdi],rsi; lock btr [rdi+rdx*8],esi; ret
    let (text, _, stores) =
        checked(&Module::new(&[0x48, 0x0f, 0xab, 0x37, 0xf0, 0x0f, 0xb3, 0x34, 0xd7, 0xc3]));
    assert_eq!((stores.checked, stores.bits), (2, 2));
    insta::assert_snapshot!(text);
}

#[test]
fn stores_of_all_sizes_are_looked_up() {
    // movups [rdi],xmm0; vmovdqu [rsi+32],ymm0; cmpxchg16b [rdx]; xchg [rcx],al; lock cmpxchg8b [r8]; lock add dword [rsp-4],0;
    // fstp tword [r9]; mov word [r10],1; ret
    let code = [
        0x0f, 0x11, 0x07, 0xc5, 0xfe, 0x7f, 0x46, 0x20, 0x48, 0x0f, 0xc7, 0x0a, 0x86, 0x01, 0xf0, 0x41, 0x0f,
        0xc7, 0x08, 0xf0, 0x83, 0x44, 0x24, 0xfc, 0x00, 0x41, 0xdb, 0x39, 0x66, 0x41, 0xc7, 0x02, 0x01, 0x00,
        0xc3,
    ];
    let (text, _, stores) = checked(&Module::new(&code));
    assert_eq!((stores.checked, stores.odd, stores.same), (7, 1, 1));
    insta::assert_snapshot!(text);
    // xsave [rdi] writes as much as the processor has
    assert!(refusal(&[0x0f, 0xae, 0x27, 0xc3]).contains("nobody knows how much"));
}

#[test]
fn per_cpu_variables_are_the_modules_own_or_asked_for() {
    // inc dword [gs:__preempt_count]; inc qword [gs:rdi]; mov dword [gs:elsewhere],1; mov dword [gs:own],1; ret
    let code = [
        0x65, 0xff, 0x04, 0x25, 0, 0, 0, 0, 0x65, 0x48, 0xff, 0x07, 0x65, 0xc7, 0x04, 0x25, 0, 0, 0, 0, 0x01,
        0x00, 0x00, 0x00, 0x65, 0xc7, 0x04, 0x25, 0, 0, 0, 0, 0x01, 0x00, 0x00, 0x00, 0xc3,
    ];
    let mut module = Module::new(&code);
    let count = import(&mut module, "__preempt_count");
    let section = module.section(".data..percpu", elf::SHF_WRITE, &[0; 8]);
    let own = module.0.symbols.len();
    let symbol =
        Symbol { name: "own".into(), index: SectionIndex::In(section), ..module.0.symbols[2].clone() };
    module.0.symbols.push(symbol);
    module.reloc(TEXT, 4, reloc::ABS32S, count, 0);
    module.reloc(TEXT, 16, reloc::ABS32S, 4, 0);
    module.reloc(TEXT, 28, reloc::ABS32S, own, 4);
    let (text, thunks, stores) = checked(&module);
    assert_eq!((stores.checked, stores.per_cpu, stores.kernel_per_cpu, stores.own), (2, 2, 1, 1));
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(thunks.lines().filter(|line| line.contains(';')).collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_may_fault_may_go_to_user_memory() {
    // mov [rdi],rsi (with a way out to 4); ret; 4: mov eax,1; ret
    let mut module = Module::new(&[0x48, 0x89, 0x37, 0xc3, 0xb8, 0x01, 0x00, 0x00, 0x00, 0xc3]);
    module.table("__ex_table", 0, &[0; 12], &[(0, 0), (4, 4)]);
    let (text, _, stores) = checked(&module);
    assert_eq!((stores.checked, stores.user), (1, 1));
    insta::assert_snapshot!(text);
}

#[test]
fn thunks_return_as_the_module_does() {
    // mov [rdi],rsi; jmp __x86_return_thunk
    let mut module = Module::new(&[0x48, 0x89, 0x37, 0xe9, 0, 0, 0, 0]);
    let thunk = import(&mut module, "__x86_return_thunk");
    module.reloc(TEXT, 4, reloc::PLT32, thunk, -4);
    module.table(".return_sites", 0, &[0; 4], &[(0, 3)]);
    let (_, thunks, _) = checked(&module);
    let last: Vec<&str> = thunks.lines().rev().take(3).collect();
    insta::assert_snapshot!(last.join("\n"));
    let rewritten = module.rewrite(&mut Checks::new(2)).unwrap();
    let object = Object::read("result", &rewritten.file).unwrap();
    let sites = &object.sections[object.section(".return_sites").unwrap()];
    let sections: Vec<_> = sites.relocs.iter().map(|reloc| object.symbols[reloc.symbol].section()).collect();
    assert_eq!((sites.size(), sections), (8, vec![Some(TEXT), object.section(SECTION)]));
}

#[test]
fn a_function_that_keeps_more_than_it_has_to_is_refused() {
    // f: call g; mov rax,r8; ret; g: mov [rdi],rsi; ret
    let mut module = Module::new(&[0xe8, 4, 0, 0, 0, 0x4c, 0x89, 0xc0, 0xc3, 0x48, 0x89, 0x37, 0xc3]);
    let g = Symbol { name: "g".into(), value: 9, size: 4, ..module.0.symbols[3].clone() };
    module.0.symbols[3].size = 9;
    module.0.symbols.push(g);
    let error = module.rewrite(&mut Checks::new(1)).unwrap_err().to_string();
    assert!(error.contains("g") && error.contains("afterwards that a call may change"), "{error}");
}

#[test]
fn frames_with_addresses_taken_ask_before_they_go() {
    // sub rsp,40; lea rdi,[rsp+8]; call elsewhere; add rsp,40; ret
    let code = [
        0x48, 0x83, 0xec, 0x28, 0x48, 0x8d, 0x7c, 0x24, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x28, 0xc3,
    ];
    let mut module = Module::new(&code);
    module.reloc(TEXT, 10, reloc::PLT32, 4, -4);
    let (text, thunks, stores) = checked(&module);
    assert_eq!((stores.checked, stores.frames), (0, 1));
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(thunks);
    // push rbp; mov rbp,rsp; sub rsp,-128; lea rdi,[rbp-32]; leave; ret: the first `sub` shrinks the stack,
    // too
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x80, 0x48, 0x8d, 0x7d, 0xe0, 0xc9, 0xc3];
    let (text, _, stores) = checked(&Module::new(&code));
    assert_eq!(stores.frames, 2);
    insta::assert_snapshot!(text);
    // lea r10,[rsp+8]; and rsp,-32; push [r10-8]; mov rdi,rsp; lea rsp,[r10-8]; ret
    let code = [
        0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x48, 0x89, 0xe7, 0x49,
        0x8d, 0x62, 0xf8, 0xc3,
    ];
    let (text, _, stores) = checked(&Module::new(&code));
    assert_eq!(stores.frames, 1);
    insta::assert_snapshot!(text);
    // Without an address of anything in the stack frame nobody holds anything of it: sub rsp,40; mov
    // [rsp+8],rdi; add rsp,40; ret
    let code = [0x48, 0x83, 0xec, 0x28, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x28, 0xc3];
    assert_eq!(checked(&Module::new(&code)).2.frames, 0);
}

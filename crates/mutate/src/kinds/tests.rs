//! Each kind on a small function.

use super::*;
use crate::code::functions;
use crate::edit::new_text;
use crate::testing::Function as Code;
use crate::testing::{PC32, TABLE};

fn read(file: &[u8]) -> (Elf, Vec<Function>) {
    let elf = Elf::parse("x", file).unwrap();
    let functions = functions(&elf);
    (elf, functions)
}

/// All places of a kind, each as the offsets and the new texts of its changes.
fn planted(file: &[u8], kind: Kind, increment: u64) -> Vec<Vec<(u64, String)>> {
    let (elf, functions) = read(file);
    let mut random = Random::new(1, "test", 0);
    let text = |site: &Site| {
        let one = site.plant(&elf, &functions, increment, &mut random)?;
        let function = &functions[site.function];
        let change = |edit: &Edit| (function.insns[edit.insn].at(), new_text(&elf, function, edit));
        Some(one.edits.iter().map(change).collect())
    };
    sites(&elf, &functions, kind).iter().filter_map(text).collect()
}

#[track_caller]
fn assert_planted(code: Code, kind: Kind, expected: &[&[(u64, &str)]]) {
    let found = planted(&code.module(), kind, 8);
    let found: Vec<Vec<(u64, &str)>> =
        found.iter().map(|site| site.iter().map(|(at, text)| (*at, text.as_str())).collect()).collect();
    assert_eq!(found, expected);
}

#[test]
fn names_are_those_that_users_type() {
    let names = |list: &[&str]| Kind::list(&list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    assert_eq!(names(&["all"]).unwrap(), Kind::ALL);
    assert_eq!(
        names(&["off-by-one", "flip-branch", "off-by-one"]).unwrap(),
        [Kind::FlipBranch, Kind::OffByOne]
    );
    assert_eq!(
        names(&["flip"]).unwrap_err().to_string(),
        "there is no kind of bug named 'flip'; there are flip-branch, lengthen-loop, larger-copy, off-by-one, \
         delete-assignment, wrong-pointer, missing-lock, missing-check, early-free and all"
    );
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
    }
}

#[test]
fn conditions_are_inverted_unless_they_are_loops() {
    // head: test edi,edi; je +2; nop; nop; jne head; jg +6 (near); six nops; ret
    let code = [
        0x85, 0xff, 0x74, 2, 0x90, 0x90, 0x75, 0xf8, 0x0f, 0x8f, 6, 0, 0, 0, 0x90, 0x90, 0x90, 0x90, 0x90,
        0x90, 0xc3,
    ];
    assert_planted(Code::new().code(&code), Kind::FlipBranch, &[&[(2, "jne f+0x6")], &[(8, "jle f+0x14")]]);
}

#[test]
fn comparisons_become_off_by_one_where_numbers_are_compared() {
    // cmp edi,5; jg +0; cmp edi,5; jae +0; cmp edi,esi; cmovb eax,ecx; setle al; bt edi,1; jb +0; ret
    let code = [
        0x83, 0xff, 5, 0x7f, 0, 0x83, 0xff, 5, 0x73, 0, 0x39, 0xf7, 0x0f, 0x42, 0xc1, 0x0f, 0x9e, 0xc0, 0x0f,
        0xba, 0xe7, 1, 0x72, 0, 0xc3,
    ];
    assert_planted(
        Code::new().code(&code),
        Kind::OffByOne,
        &[&[(3, "jge f+0x5")], &[(8, "ja f+0xa")], &[(12, "cmovbe eax,ecx")], &[(15, "setl al")]],
    );
}

#[test]
fn bounds_of_loops_grow_by_whole_steps() {
    // head: add eax,4; cmp eax,64; jne head; ret
    let up = [0x83, 0xc0, 4, 0x83, 0xf8, 64, 0x75, 0xf8, 0xc3];
    assert_planted(Code::new().code(&up), Kind::LengthenLoop, &[&[(3, "cmp eax,60h")]]);
    // A byte has no room for more.
    assert!(planted(&Code::new().code(&up).module(), Kind::LengthenLoop, 100).is_empty());
    // mov ecx,10; head: nop; sub ecx,1; jne head; ret
    let down = [0xb9, 10, 0, 0, 0, 0x90, 0x83, 0xe9, 1, 0x75, 0xfa, 0xc3];
    assert_planted(Code::new().code(&down), Kind::LengthenLoop, &[&[(0, "mov ecx,12h")]]);
    // head: cmp eax,9; jg out; inc eax; jmp head; out: ret
    let top = [0x83, 0xf8, 9, 0x7f, 4, 0xff, 0xc0, 0xeb, 0xf7, 0xc3];
    assert_planted(Code::new().code(&top), Kind::LengthenLoop, &[&[(0, "cmp eax,11h")]]);
    // A counter that only meets its bound, with an unknown step: the loop would never end. head: add eax,ecx;
    // cmp eax,64; jne head; ret
    let unknown = [0x01, 0xc8, 0x83, 0xf8, 64, 0x75, 0xf9, 0xc3];
    assert_planted(Code::new().code(&unknown), Kind::LengthenLoop, &[]);
    // A loop that counts down to a bound runs less often with a higher one. head: sub eax,4; cmp eax,8; jg
    // head; ret
    let lower = [0x83, 0xe8, 4, 0x83, 0xf8, 8, 0x7f, 0xf8, 0xc3];
    assert_planted(Code::new().code(&lower), Kind::LengthenLoop, &[]);
}

#[test]
fn sizes_of_copies_grow() {
    let code = Code::new().code(&[0xba, 16, 0, 0, 0]).call("memcpy"); // mov edx,16
    let code = code.code(&[0x8d, 0x53, 4]).call("_copy_from_user"); // lea edx,[rbx+4]
    let code = code.code(&[0xb9, 12, 0, 0, 0, 0xf3, 0x48, 0xab]); // mov ecx,12; rep stosq
    // lea ecx,[rax+10h]; shr ecx,3; rep movsq
    let code = code.code(&[0x8d, 0x48, 16, 0xc1, 0xe9, 3, 0xf3, 0x48, 0xa5]);
    let code = code.code(&[0xba, 16, 0, 0, 0]).call("printk");
    let code = code.code(&[0x89, 0xda]).call("memcpy").code(&[0xc3]); // mov edx,ebx
    assert_planted(
        code,
        Kind::LargerCopy,
        &[
            &[(0, "mov edx,18h")],
            &[(10, "lea edx,[rbx+0Ch]")],
            &[(18, "mov ecx,0Dh")],
            &[(26, "lea ecx,[rax+18h]")],
        ],
    );
}

#[test]
fn assignments_are_left_out_and_flags_kept() {
    // mov [rbx+8],eax; add dword [rbx],1; je +0; add dword [rbx],1; lock inc dword [rbx]; push rax; ret
    let code = [0x89, 0x43, 8, 0x83, 0x03, 1, 0x74, 0, 0x83, 0x03, 1, 0xf0, 0xff, 0x03, 0x50, 0xc3];
    assert_planted(Code::new().code(&code), Kind::DeleteAssignment, &[&[(0, "nothing")], &[(8, "nothing")]]);
}

#[test]
fn stores_go_elsewhere_and_stay_stores() {
    // mov [rbx+8],eax; mov [rsp+8],eax; mov [rbx+rcx*4+100h],eax; ret
    let code = [0x89, 0x43, 8, 0x89, 0x44, 0x24, 8, 0x89, 0x84, 0x8b, 0, 1, 0, 0, 0xc3];
    let (elf, functions) = read(&Code::new().code(&code).module());
    let sites = sites(&elf, &functions, Kind::WrongPointer);
    assert_eq!(sites.iter().map(|site| site.insn).collect::<Vec<_>>(), [0, 2]);
    let (mut moved, mut based) = (0, 0);
    for number in 0..200 {
        let mut random = Random::new(1, "test", number);
        let site = &sites[number as usize % 2];
        let one = site.plant(&elf, &functions, 8, &mut random).unwrap();
        let old = &functions[0].insns[site.insn].instr;
        let new = crate::edit::decode(&one.edits[0].bytes, old.ip()).unwrap();
        let [new] = new[..] else { panic!("more than one instruction") };
        assert_eq!((new.code(), new.len()), (old.code(), old.len()));
        assert_eq!(new.memory_index(), old.memory_index());
        let same_base = new.memory_base() == old.memory_base();
        assert_ne!(same_base, new.memory_displacement64() == old.memory_displacement64());
        *(if same_base { &mut moved } else { &mut based }) += 1;
    }
    assert!(moved > 50 && based > 50, "{moved} {based}");
}

#[test]
fn locks_go_with_their_unlocks() {
    let take = |code: Code, lock: &[u8], name: &str| code.code(lock).call(name);
    let (a, b) = (&[0x48, 0x8d, 0x7b, 8][..], &[0x48, 0x89, 0xef][..]); // lea rdi,[rbx+8]; mov rdi,rbp
    let code = take(Code::new(), a, "mutex_lock"); // at 4
    let code = take(code, b, "_raw_spin_lock_irqsave"); // at 12
    let code = take(code, b, "_raw_spin_unlock_irqrestore"); // at 20
    let code = take(code, a, "mutex_unlock"); // at 29
    let code = take(code, a, "mutex_lock_interruptible"); // at 38
    let code = take(code, a, "mutex_unlock"); // at 47
    let code = take(code, a, "mutex_unlock"); // at 56
    // This lock is released elsewhere.
    let code = take(code, b, "mutex_lock").code(&[0xc3]);
    let file = code.module();
    assert_eq!(
        planted(&file, Kind::MissingLock, 8),
        [
            vec![(4, "nothing".to_owned()), (29, "nothing".to_owned())],
            vec![(12, "nothing".to_owned()), (20, "nothing".to_owned())],
            vec![(38, "xor eax,eax".to_owned()), (47, "nothing".to_owned()), (56, "nothing".to_owned())],
        ]
    );
    let (elf, functions) = read(&file);
    let sites = sites(&elf, &functions, Kind::MissingLock);
    let one = sites[0].plant(&elf, &functions, 8, &mut Random::new(1, "test", 0)).unwrap();
    assert!(one.edits.iter().all(|edit| edit.place == crate::edit::Place::Drop));
}

#[test]
fn results_are_not_looked_at_whichever_way_means_failure() {
    // test eax,eax; js +0
    let code = Code::new().call("a").code(&[0x85, 0xc0, 0x78, 0]);
    // mov rbx,rax; test rbx,rbx; jne +0: a pointer, so the branch means success
    let code = code.call("b").code(&[0x48, 0x89, 0xc3, 0x48, 0x85, 0xdb, 0x75, 0]);
    // cmp rax,-4096; ja +0 (near)
    let code = code.call("c").code(&[0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x0f, 0x87, 0, 0, 0, 0]);
    // test eax,eax; js +0; je +0: two branches share the test
    let code = code.call("d").code(&[0x85, 0xc0, 0x78, 0, 0x74, 0, 0xc3]);
    assert_planted(
        code,
        Kind::MissingCheck,
        &[
            &[(5, "nothing"), (7, "nothing")],
            &[(17, "nothing"), (20, "jmp f+0x16")],
            &[(27, "nothing"), (33, "nothing")],
        ],
    );
    // A long jump that is always taken leads where it did: test eax,eax; je +1 (near); nop; ret
    let code = Code::new().call("a").code(&[0x85, 0xc0, 0x0f, 0x84, 1, 0, 0, 0, 0x90, 0xc3]);
    assert_planted(code, Kind::MissingCheck, &[&[(5, "nothing"), (7, "jmp f+0xe")]]);
}

#[test]
fn pointers_are_freed_by_calls_that_get_them_earlier() {
    let pointer = &[0x48, 0x89, 0xdf]; // mov rdi,rbx
    let code = Code::new().code(&[0x48, 0x8b, 0x18]); // mov rbx,[rax]
    let code = code.code(pointer).call("use").code(&[0x48, 0x89, 0xef]).call("other");
    let code = code.code(pointer).call("kfree").code(&[0xc3]);
    assert_planted(code, Kind::EarlyFree, &[&[(6, "call kfree")]]);
    // Before the pointer is set, the register holds another one.
    let code = Code::new().code(pointer).call("use").code(&[0x48, 0x8b, 0x18]);
    assert_planted(code.code(pointer).call("kfree").code(&[0xc3]), Kind::EarlyFree, &[]);
    // A message gets the pointer: mov rdi,message; call _printk
    let code = Code::new().code(&[0x48, 0xc7, 0xc7, 0, 0, 0, 0]).call("_printk");
    let code = code.code(pointer).call("kfree").code(&[0xc3]);
    assert_planted(code, Kind::EarlyFree, &[&[(0, "mov rdi,rbx"), (7, "call kfree")]]);
    // cmp eax,1; jne over the free
    let code = Code::new().code(&[0x83, 0xf8, 1, 0x75, 8]).code(pointer).call("vfree").code(&[0xc3]);
    assert_planted(code, Kind::EarlyFree, &[&[(3, "nothing")]]);
    // test rbx,rbx; je over the free
    let code = Code::new().code(&[0x48, 0x85, 0xdb, 0x74, 8]).code(pointer).call("vfree").code(&[0xc3]);
    assert_planted(code, Kind::EarlyFree, &[]);
}

#[test]
fn nothing_that_a_table_names_is_a_place() {
    // cmp edi,5; jg +0; mov [rbx],eax; ret
    let code = [0x83, 0xff, 5, 0x7f, 0, 0x89, 0x03, 0xc3];
    for (at, kinds) in [(3, &[Kind::FlipBranch, Kind::OffByOne][..]), (5, &[Kind::DeleteAssignment])] {
        let mut object = Code::new().code(&code).object();
        let table = object.section("__jump_table", TABLE, &[0; 16]);
        object.relocate(table, 0, PC32, 1, at);
        let file = object.build();
        for &kind in kinds {
            assert_eq!(planted(&file, kind, 8), Vec::<Vec<_>>::new(), "{kind}");
            assert_eq!(planted(&Code::new().code(&code).module(), kind, 8).len(), 1, "{kind}");
        }
    }
}

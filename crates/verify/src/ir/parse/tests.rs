use super::*;
use crate::ir::instruction::{End, Operation, Value};

const TEXT: &str = r#"
%struct.nic = type { i32, [2 x i8], %struct.other* }
%struct.other = type opaque
@count = internal global i32 5, align 4
@ops = internal constant { i32 ()* } { i32 ()* @f }, align 8
define internal i32 @f() #0 {
  %1 = alloca i32, align 4
  store i32 -1, i32* %1, align 4, !dbg !3
  %2 = load i32, i32* %1, align 4
  switch i32 %2, label %4 [
    i32 3, label %3
    i32 -1, label %4
  ], !dbg !3

3:                                                ; preds = %0
  br label %4

4:                                                ; preds = %3, %0, %0
  %5 = phi i32 [ 1, %3 ], [ %2, %0 ], [ 0, %0 ]
  %6 = call i32 (i8*, ...) @g(i8* getelementptr inbounds ([2 x i8], [2 x i8]* @s, i64 0, i64 0), i32 noundef signext %5) #2
  %7 = frobnicate i32 %6
  ret i32 %6
}
declare i32 @g(i8* noundef, ...)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = distinct !DISubprogram(name: "f", file: !1, line: 4)
!3 = !DILocation(line: 9, column: 1, scope: !2)
"#;

#[test]
fn a_module_is_read() {
    let module = module("a.c", TEXT).unwrap();
    let f = &module.functions["f"];
    assert_eq!(f.blocks.len(), 3);
    assert!(matches!(&f.blocks[0].end, End::Switch(_, 2, cases) if cases[1] == (0xffff_ffff, 2)));
    assert_eq!(module.debug.line(f.blocks[0].line).number, 9);
    let Operation::Call(call) = &f.blocks[2].instructions[1].operation else { panic!("{:?}", f.blocks[2]) };
    assert!(matches!(&call.callee, Value::Global(name) if **name == *"g"));
    assert_eq!(call.arguments.len(), 2);
    assert!(matches!(&f.blocks[2].instructions[2].operation, Operation::Unknown(_)));
    assert_eq!(module.address_taken, ["f"]);
    assert!(module.globals["ops"].constant && !module.globals["count"].constant);
}

/// Assembly that may jump reads and writes its operands like any other, and the parts of what it returns are no loss.
#[test]
fn assembly_that_jumps_has_operands() {
    let text = "define internal i32 @f(i32* %p) {\n\
        entry:\n  %0 = callbr i32 asm \"x\", \"=r,=*m,X\"(i32* elementtype(i32) %p, i8* blockaddress(@f, %out))\n\
        \x20         to label %next [label %out], !dbg !3\n\n\
        next:\n  %1 = call { i8, i32 } asm \"y\", \"=r,=r\"()\n  %2 = extractvalue { i8, i32 } %1, 1\n  ret i32 %2\n\n\
        out:\n  ret i32 0\n}\n";
    let module = module("a.c", text).unwrap();
    let f = &module.functions["f"];
    let Operation::Call(call) = &f.blocks[0].instructions[0].operation else { panic!("{:?}", f.blocks[0]) };
    assert!(call.assembly && call.arguments[0].1 == Value::Register(0), "{call:?}");
    assert!(matches!(&f.blocks[0].end, End::Any(all) if all[..] == [1, 2]));
    assert!(matches!(&f.blocks[1].instructions[1].operation, Operation::Part(_)));
    assert!(module.address_taken.is_empty(), "{:?}", module.address_taken);
    let census = crate::ir::census::Census::new(&module);
    assert_eq!((census.functions, census.unknown.len()), (1, 1), "{census:?}");
}

#[test]
fn damaged_text_is_no_panic() {
    for end in 0..TEXT.len() {
        if TEXT.is_char_boundary(end) {
            let _ = module("a.c", &TEXT[..end]);
            let _ = module("a.c", &TEXT[end..]);
        }
    }
    for word in ["i32", "%1", "label", "[", "]", ",", "(", "*", "@g", "!3"] {
        let _ = module("a.c", &TEXT.replace(word, ""));
        let _ = module("a.c", &TEXT.replace(word, "(((("));
    }
    let deep = format!("@x = global {}i8{} zeroinitializer\n", "[1 x ".repeat(100_000), "]".repeat(100_000));
    let _ = module("a.c", &deep);
}

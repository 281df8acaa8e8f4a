"""What ends a process with success in languages other than Python, under any name.

1. A call is read as the name that it stands for: `process["exit"]`, `import o "os"` and
   `o.Exit`, `use std::process::exit as leave`, `import static java.lang.System.exit`.
2. Its status: none, 0, or a name for 0.
3. Calls that keep a function for when checks end or fail (`atexit`, `set_terminate`,
   `process.on("exit")`, a shutdown hook, a panic hook).
"""

import re
from functools import cached_property
from typing import TYPE_CHECKING

from forensics.shortcuts.vocabulary import Vocabulary

from .grammars import Tree
from .other_cases import callee

if TYPE_CHECKING:
    from tree_sitter import Node

_EXITS = {
    "javascript": r"process\.(?:exit|reallyExit)|Deno\.exit",
    "java": r"System\.exit|Runtime\.getRuntime\(\)\.(?:halt|exit)",
    "go": r"(?:os|syscall)\.Exit",
    "rust": r"process::exit|libc::_?exit",
    "cpp": r"_?exit|_Exit|quick_exit|ExitProcess",
}
_FORMS = Vocabulary(__name__)
_KILLS = {
    "javascript": r"process\.kill\((?:process\.)?pid,['\"]SIG(?:KILL|TERM)",
    "go": r"syscall\.Kill\((?:syscall|os)\.Getpid\(\)",
    "rust": r"libc::kill\((?:libc::getpid\(\)|std::process::id\(\)|process::id\(\))",
    "cpp": r"kill\(getpid\(\)|raise\(SIG(?:KILL|TERM)\b",
}
_HOOKS = {
    "javascript": r"process\.(?:on|once|addListener|prependListener)",
    "java": r"(?:Runtime\.getRuntime\(\)|\w{1,40})\.addShutdownHook"
    r"|Thread\.setDefaultUncaughtExceptionHandler",
    "rust": r"(?:std::)?panic::set_hook",
    "cpp": r"(?:std::)?(?:atexit|at_quick_exit|set_terminate|signal)",
}
_SUCCESS = ("EXIT_SUCCESS", "ExitCode::SUCCESS")


def family(language: str) -> str:
    """The language whose names another one shares."""
    return "javascript" if language == "typescript" else language


class ExitNames:
    """What the calls of one text stand for."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.language = family(tree.language)
        self.source = tree.source.decode(errors="replace")
        self.any = self.language in _EXITS and _FORMS.worth_a_look.search(self.source) is not None

    def exit_name(self, node: "Node") -> str:
        """The name of an exit with success, else nothing."""
        name = self._stands_for(callee(self.tree, node))
        called = name.removesuffix(".call").removesuffix(".apply")
        if not re.fullmatch(_EXITS[self.language], called):
            return ""
        arguments = node.child_by_field_name("arguments")
        given = [self.tree.text(one) for one in arguments.named_children] if arguments else []
        status = given[1 if called != name else 0 :][:1]
        return called if self._succeeds(status[0] if status else "") else ""

    def kills(self, node: "Node") -> bool:
        """Whether a call kills the process that it stands in."""
        pattern = _KILLS.get(self.language)
        text = re.sub(r"\s|std::(?=raise)|(?<!\w)::", "", self.tree.text(node)[:300])
        return pattern is not None and re.match(pattern, text) is not None

    def is_hook(self, node: "Node") -> bool:
        """Whether a call keeps a function for when checks end or fail."""
        pattern = _HOOKS.get(self.language)
        name = callee(self.tree, node)
        if pattern is None or not re.fullmatch(pattern, name):
            return False
        text = self.tree.text(node.child_by_field_name("arguments"))[:200]
        if self.language == "javascript":
            return _FORMS.events.match(text) is not None
        return not name.endswith("signal") or _FORMS.faults.match(text) is not None

    def _stands_for(self, name: str) -> str:
        """The plain name for what is called."""
        name = re.sub(r"['\"`]\s{0,9}\+\s{0,9}['\"`]", "", name[:200])
        name = re.sub(r"(?:\?\.)?\[\s{0,9}['\"`](\w{1,40})['\"`]\s{0,9}\]", r".\1", name)
        name = re.sub(r"require\(\s{0,9}['\"](?:node:)?process['\"]\s{0,9}\)", "process", name)
        name = re.sub(r"\s", "", name).replace("?.", ".")
        name = re.sub(r"^(?:global(?:This)?\.|window\.|java\.lang\.|::|std::)", "", name)
        mark = "::" if self.language in ("rust", "cpp") else "."
        first, dot, rest = name.partition(mark)
        known = self.names.get(first)
        return f"{known}{dot}{rest}" if known else name

    @cached_property
    def names(self) -> dict[str, str]:
        """The names that the text itself gives to what exits."""
        bind = {"javascript": _of_javascript, "go": _of_go, "rust": _of_rust, "java": _of_java}
        found = bind.get(self.language, _of_cpp)(self.source)
        own = re.findall(r"\b(?:function|fn|func|void|int)\s{1,9}(\w{1,80})\s{0,9}\(", self.source)
        return {name: stands for name, stands in found.items() if name not in own}

    def _succeeds(self, status: str) -> bool:
        status = re.sub(r"^(?:\(\s{0,9}\w{1,20}\s{0,9}\)\s{0,9})", "", status.strip()).strip("() ")
        if _FORMS.zero.fullmatch(status) or status.rpartition("std::")[2] in _SUCCESS:
            return True
        if status in _FORMS.words["nothing"]:
            return self.language == "javascript"
        if not re.fullmatch(r"\w{1,80}", status) or status[0].isdigit():
            return False
        typed = r"\b\s{0,9}(?::\s{0,9}\w{1,20}\s{0,9})?=?\s{0,9}0\s{0,9}(?:[;,\n]|$)"
        return re.search(rf"\b{status}{typed}", self.source) is not None


def is_hard(name: str) -> bool:
    """Whether an exit leaves without what a program does at its end."""
    return _FORMS.hard.search(name) is not None


def _of_javascript(source: str) -> dict[str, str]:
    found = dict(_FORMS.js_all.findall(source))
    found |= {one[1] or one[2]: "process" for one in _FORMS.js_import.finditer(source)}
    for one in _FORMS.js_from.finditer(source):
        for part in one["names"].split(","):
            words = re.split(r"\s{0,9}(?::|\bas\b)\s{0,9}", part.strip())
            if words[0] in ("exit", "reallyExit"):
                found[words[-1]] = f"process.{words[0]}"
    return found


def _of_go(source: str) -> dict[str, str]:
    named = re.findall(r"(?m)^[\t ]{0,9}(?:import\s{1,9})?([\w.]{1,40}) \"(os|syscall)\"", source)
    found = {name: package for name, package in named if name not in (".", "import", "_")}
    whole = [package for name, package in named if name == "."]
    return found | ({"Exit": f"{whole[0]}.Exit"} if whole else {})


def _of_rust(source: str) -> dict[str, str]:
    found = {}
    for tree in re.findall(r"\buse\s{1,9}([^;]{1,300});", source):
        if "process" in tree:
            names = re.findall(r"\b(process|exit)\b(?:\s{1,9}as\s{1,9}(\w{1,80}))?", tree)
            for name, other in names:
                found[other or name] = "process" if name == "process" else "process::exit"
    return found


def _of_java(source: str) -> dict[str, str]:
    static = re.search(r"\bimport\s{1,9}static\s{1,9}java\.lang\.System\.(?:exit|\*)", source)
    named = re.findall(r"\b(\w{1,80})\s{0,9}=\s{0,9}Runtime\.getRuntime\(\)\s{0,9}[;,]", source)
    return dict.fromkeys(named, "Runtime.getRuntime()") | (
        {"exit": "System.exit"} if static else {}
    )


def _of_cpp(source: str) -> dict[str, str]:
    return dict([*_FORMS.cpp_pointer.findall(source), *_FORMS.cpp_macro.findall(source)])

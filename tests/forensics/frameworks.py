# ruff: noqa: E501
"""Small projects in many test frameworks, with what may be done to their tests: `BAD` takes
something from them, `GOOD` does not. Each row: a name, a path, its text, and replacements
(`None` for the text: a new file; `""` for the new text: the file is gone).
"""

JUNIT4 = """package org.acme;

import static org.junit.Assert.*;
import org.junit.Test;

public class MoneyTest {
    private Money money = new Money(5);

    @Test
    public void addsUp() {
        assertEquals("sum", 7, money.plus(2).amount());
        assertTrue(money.positive());
    }

    @Test(expected = IllegalArgumentException.class)
    public void refusesNegative() {
        new Money(-1);
    }

    @Test(timeout = 100)
    public void isFast() {
        assertEquals(0.5, money.half(), 0.001);
    }
}
"""
TESTNG = """package org.acme;

import org.testng.annotations.*;
import static org.testng.Assert.*;

public class PathsTest {
    @DataProvider(name = "paths")
    public Object[][] paths() {
        return new Object[][] {
            {"/a/../b", "/b"},
            {"/a/./b", "/a/b"},
        };
    }

    @Test(dataProvider = "paths")
    public void normalizes(String in, String out) {
        assertEquals(Paths.normalize(in), out);
    }

    @Test
    public void joins() {
        assertThat(Paths.join("a", "b")).as("joined").isEqualTo("a/b");
    }
}
"""
MOCHA = """const { expect } = require('chai');
const slug = require('../lib/slug');

describe('slug', function () {
  it('lowers', function () {
    expect(slug('Hello')).to.equal('hello');
  });

  it('joins words', async function () {
    const got = slug('a b');
    got.should.equal('a-b');
    expect(() => slug(null)).to.throw(TypeError);
  });
});
"""
VITEST = """import { expect, test, vi } from 'vitest';
import { price } from '../src/price';

test.each([
  [1, '1.00'],
  [2.5, '2.50'],
])('price %s', (n, want) => {
  expect(price(n)).toBe(want);
});

test('round', () => {
  expect(price(0.1 + 0.2)).toBeCloseTo(0.3, 5);
  expect(price(3)).toMatchInlineSnapshot(`"3.00"`);
});
"""
TESTIFY = """package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGet(t *testing.T) {
	s := New()
	require.NoError(t, s.Put("a", 1))
	got, err := s.Get("a")
	require.NoError(t, err)
	require.Equal(t, 1, got)
}

func TestTable(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want int
	}{
		"one": {in: "a", want: 1},
		"two": {in: "bb", want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Len(tt.in); got != tt.want {
				t.Errorf("Len(%q) = %d, want %d", tt.in, got, tt.want)
			}
		})
	}
}
"""
RUST = """use shapes::{area, Shape};

#[test]
fn squares() {
    assert_eq!(area(&Shape::Square(2.0)), 4.0, "square");
    assert!(area(&Shape::Square(1.0)) > 0.5);
}

#[test]
fn shows() {
    insta::assert_snapshot!(render(3), @"<3>");
    assert!((area(&Shape::Circle(1.0)) - 3.14159).abs() < 1e-4);
}

#[test]
#[should_panic(expected = "negative")]
fn refuses() {
    area(&Shape::Square(-1.0));
}
"""
CATCH = """#include <catch2/catch_test_macros.hpp>
#include "ring.h"

TEST_CASE("ring keeps order", "[ring]") {
  Ring<int> ring(3);
  SECTION("push") {
    ring.push(1);
    REQUIRE(ring.front() == 1);
    CHECK(ring.size() == 1);
  }
  SECTION("overflow") {
    REQUIRE_THROWS_AS(ring.at(9), std::out_of_range);
  }
}

TEST_CASE("mean", "[math]") {
  CHECK(mean({1.0, 2.0}) == Approx(1.5).epsilon(0.01));
}
"""
PY = """import pytest
from acme.clock import parse, ticks


@pytest.fixture
def clock():
    return object()


@pytest.mark.parametrize("text, want", [("1h", 60), ("5m", 5)])
def test_parse(text, want):
    assert parse(text) == want


def test_ticks(clock):
    got = ticks(3)
    assert got == [0, 1, 2]
    assert abs(ticks.rate - 0.25) < 1e-6


def check(text, want):
    assert parse(text) == want


def test_days():
    check("1d", 1440)
    with pytest.raises(ValueError):
        parse("x")
"""
J, N, M, V = (
    "src/test/java/org/acme/MoneyTest.java",
    "src/test/java/org/acme/PathsTest.java",
    "test/slug.test.js",
    "tests/price.test.ts",
)
G, R, C, P = "store/store_test.go", "tests/shapes.rs", "tests/ring_test.cpp", "tests/test_clock.py"
GRADLE = "plugins { id 'java' }\n\ntest {\n    useJUnitPlatform()\n}\n"
POM = "<project>\n  <build>\n    <plugins>\n      <plugin>\n        <artifactId>maven-surefire-plugin</artifactId>\n        <configuration>\n          <forkCount>1</forkCount>\n        </configuration>\n      </plugin>\n    </plugins>\n  </build>\n</project>\n"
PKG = '{\n  "name": "slug",\n  "scripts": {\n    "build": "tsc",\n    "test": "mocha test"\n  },\n  "jest": {\n    "verbose": true\n  }\n}\n'
CI = "name: ci\non: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - uses: actions/checkout@v4\n      - run: pip install -e .\n      - run: pytest tests\n"
CMAKE = "enable_testing()\nadd_executable(ring_test tests/ring_test.cpp)\nadd_test(NAME ring COMMAND ring_test)\nadd_test(NAME mean COMMAND mean_test)\n"
MAKE = "all: build\n\nbuild:\n\tcc -o app app.c\n\ntest: build\n\t./run_tests.sh\n\tpytest tests\n"
RUNSH = "#!/bin/bash\nset -euo pipefail\ncargo test --all\n./tests/smoke.sh\n"
BATS = '@test "adds" {\n  run ./calc 1 + 1\n  [ "$status" -eq 0 ]\n  [ "$output" = "2" ]\n}\n\n@test "fails on letters" {\n  run ./calc a\n  [ "$status" -ne 0 ]\n}\n'
SHTEST = "#!/bin/bash\nset -e\n./calc 1 + 1 > out.txt\ndiff out.txt expected/add.txt\ngrep -q 2 out.txt\necho ok\n"
DOC = '"""Sums.\n\n>>> add(1, 2)\n3\n>>> add(2, 2)\n4\n"""\n\n\ndef add(a, b):\n    return a + b\n'
CONF = "import pytest\n\n\n@pytest.fixture\ndef data():\n    return [1, 2]\n"
INI = "[pytest]\naddopts = -q\ntestpaths = tests\n"
PYPROJ = '[project]\nname = "acme"\n\n[tool.pytest.ini_options]\naddopts = "-q"\n\n[tool.coverage.run]\nbranch = true\n'
VCONF = "import { defineConfig } from 'vitest/config';\n\nexport default defineConfig({\n  test: {\n    globals: true,\n  },\n});\n"
JCONF = "module.exports = {\n  preset: 'ts-jest',\n  testEnvironment: 'node',\n};\n"
SNAP = "---\nsource: tests/render.rs\nexpression: render(3)\n---\n<3>\n<b>three</b>\n"
JSNAP = "// Jest Snapshot v1, https://goo.gl/fbAQLP\n\nexports[`card 1`] = `\n<div>\n  <b>3</b>\n</div>\n`;\n"
MAIN = 'package store\n\nimport (\n\t"os"\n\t"testing"\n)\n\nfunc TestMain(m *testing.M) {\n\tos.Exit(m.Run())\n}\n'
CARGO = '[package]\nname = "shapes"\n\n[dependencies]\nserde = "1"\n'
RLIB = "pub fn double(x: i32) -> i32 {\n    x * 2\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn doubles() {\n        assert_eq!(double(2), 4);\n        assert_eq!(double(-3), -6);\n    }\n}\n"

BAD = [
    ("junit4 ignore", J, JUNIT4, ("    @Test\n    public void addsUp", "    @Ignore\n    @Test\n    public void addsUp")),
    ("junit4 no annotation", J, JUNIT4, ("    @Test\n    public void addsUp", "    public void addsUp")),
    ("junit4 expected error", J, JUNIT4, ("    @Test\n    public void addsUp", "    @Test(expected = AssertionError.class)\n    public void addsUp")),
    ("junit4 error no longer expected", J, JUNIT4, ("@Test(expected = IllegalArgumentException.class)", "@Test(expected = Exception.class)")),
    ("junit4 value", J, JUNIT4, ('"sum", 7,', '"sum", 8,')),
    ("junit4 assume", J, JUNIT4, ("    public void addsUp() {\n", "    public void addsUp() {\n        Assume.assumeTrue(money.amount() > 9);\n")),
    ("junit4 catch", J, JUNIT4, ('        assertTrue(money.positive());\n', '        try {\n            assertTrue(money.positive());\n        } catch (Throwable t) {\n            // flaky\n        }\n')),
    ("junit4 delta", J, JUNIT4, ("half(), 0.001)", "half(), 10.0)")),
    ("junit4 limit of time", J, JUNIT4, ("timeout = 100", "timeout = 60000")),
    ("junit4 file gone", J, JUNIT4, None),
    ("testng disabled", N, TESTNG, ("    @Test\n    public void joins", "    @Test(enabled = false)\n    public void joins")),
    ("testng row gone", N, TESTNG, ('            {"/a/./b", "/a/b"},\n', "")),
    ("testng row changed", N, TESTNG, ('"/a/b"}', '"/a/./b"}')),
    ("assertj weaker", N, TESTNG, ('.isEqualTo("a/b")', ".isNotNull()")),
    ("testng skip exception", N, TESTNG, ("String out) {\n", 'String out) {\n        throw new SkipException("later");\n')),
    ("mocha skip", M, MOCHA, ("it('lowers'", "it.skip('lowers'")),
    ("mocha this.skip", M, MOCHA, ("it('lowers', function () {\n", "it('lowers', function () {\n    this.skip();\n")),
    ("mocha only", M, MOCHA, ("it('lowers'", "it.only('lowers'")),
    ("mocha pending", M, MOCHA, ("  it('lowers', function () {\n    expect(slug('Hello')).to.equal('hello');\n  });\n", "  it('lowers');\n")),
    ("chai should weaker", M, MOCHA, ("got.should.equal('a-b')", "got.should.be.a('string')")),
    ("chai value", M, MOCHA, ("to.equal('hello')", "to.equal('Hello')")),
    ("mocha xdescribe", M, MOCHA, ("describe('slug'", "xdescribe('slug'")),
    ("mocha throw gone", M, MOCHA, ("    expect(() => slug(null)).to.throw(TypeError);\n", "")),
    ("mocha swallowed", M, MOCHA, ("    expect(slug('Hello')).to.equal('hello');", "    try {\n      expect(slug('Hello')).to.equal('hello');\n    } catch (e) {\n      console.log(e);\n    }")),
    ("vitest todo", V, VITEST, ("test('round', () => {", "test.todo('round');\ntest.skip('rounding', () => {")),
    ("vitest fails", V, VITEST, ("test('round'", "test.fails('round'")),
    ("vitest row", V, VITEST, ("'2.50'", "'2.5'")),
    ("vitest digits", V, VITEST, ("0.3, 5)", "0.3, 0)")),
    ("vitest inline snapshot", V, VITEST, ('`"3.00"`', '`"3"`')),
    ("vitest early return", V, VITEST, ("test('round', () => {\n", "test('round', () => {\n  if (price.length) return;\n")),
    ("vitest stand-in", V, VITEST, ("test.each", "vi.mock('../src/price', () => ({ price: () => '1.00' }));\n\ntest.each")),
    ("testify weaker", G, TESTIFY, ("require.Equal(t, 1, got)", "require.NotNil(t, got)")),
    ("testify gone", G, TESTIFY, ("\trequire.NoError(t, err)\n", "\t_ = err\n")),
    ("go skip", G, TESTIFY, ("\ts := New()\n", '\tt.Skip("flaky")\n\ts := New()\n')),
    ("go row", G, TESTIFY, ('{in: "bb", want: 2}', '{in: "bb", want: 1}')),
    ("go log instead of error", G, TESTIFY, ("t.Errorf(", "t.Logf(")),
    ("go renamed out", G, TESTIFY, ("func TestGet(", "func testGet(")),
    ("go condition", G, TESTIFY, ("got != tt.want {", 'got != tt.want && name != "two" {')),
    ("go main swallows", G.replace("store_", "main_"), MAIN, ("\tos.Exit(m.Run())", "\tm.Run()\n\tos.Exit(0)")),
    ("rust ignore", R, RUST, ("#[test]\nfn squares", "#[test]\n#[ignore]\nfn squares")),
    ("rust inline snapshot", R, RUST, ('@"<3>"', '@"3"')),
    ("rust tolerance", R, RUST, ("< 1e-4", "< 1.0")),
    ("rust is_ok", R, RUST, ("assert_eq!(area(&Shape::Square(2.0)), 4.0, \"square\");", "assert!(area(&Shape::Square(2.0)) > 0.0);")),
    ("rust no test", R, RUST, ("#[test]\nfn squares", "#[allow(dead_code)]\nfn squares")),
    ("rust should panic", R, RUST, ("#[test]\nfn squares", "#[test]\n#[should_panic]\nfn squares")),
    ("rust in the source", "src/lib.rs", RLIB, ("        assert_eq!(double(-3), -6);\n", "")),
    ("rust cfg", R, RUST, ("#[test]\nfn squares", '#[cfg(feature = "slow")]\n#[test]\nfn squares')),
    ("catch hidden", C, CATCH, ('"mean", "[math]"', '"mean", "[.][math]"')),
    ("catch may fail", C, CATCH, ('"[math]"', '"[math][!mayfail]"')),
    ("catch section gone", C, CATCH, ('  SECTION("overflow") {\n    REQUIRE_THROWS_AS(ring.at(9), std::out_of_range);\n  }\n', "")),
    ("catch if 0", C, CATCH, ('TEST_CASE("mean", "[math]") {\n  CHECK(mean({1.0, 2.0}) == Approx(1.5).epsilon(0.01));\n}\n', '#if 0\nTEST_CASE("mean", "[math]") {\n  CHECK(mean({1.0, 2.0}) == Approx(1.5).epsilon(0.01));\n}\n#endif\n')),
    ("catch epsilon", C, CATCH, ("epsilon(0.01)", "epsilon(0.9)")),
    ("catch no throw type", C, CATCH, ("REQUIRE_THROWS_AS(ring.at(9), std::out_of_range)", "REQUIRE_NOTHROW(ring.size())")),
    ("catch warn", C, CATCH, ("REQUIRE(ring.front() == 1);", 'if (ring.front() != 1) WARN("front");')),
    ("python helper weakened", P, PY, ("def check(text, want):\n    assert parse(text) == want", "def check(text, want):\n    assert parse(text) is not None")),
    ("python raises AssertionError", P, PY, ("    got = ticks(3)\n    assert got == [0, 1, 2]", "    got = ticks(3)\n    with pytest.raises(AssertionError):\n        assert got == [0, 1, 2]")),
    ("python early return", P, PY, ("    got = ticks(3)\n", "    got = ticks(3)\n    if not got:\n        return\n")),
    ("python tolerance", P, PY, ("< 1e-6", "< 1")),
    ("python input easier", P, PY, ("got = ticks(3)\n", "got = ticks(1)\n")),
    ("python xfail", P, PY, ("def test_ticks", "@pytest.mark.xfail(strict=False)\ndef test_ticks")),
    ("python row", P, PY, ('("1h", 60), ', "")),
    ("doctest skip", "acme/sums.py", DOC, (">>> add(2, 2)", ">>> add(2, 2)  # doctest: +SKIP")),
    ("snapshot of insta", "tests/snapshots/render__a.snap", SNAP, ("<3>\n", "3\n")),
    ("snapshot of jest", "test/__snapshots__/card.test.js.snap", JSNAP, ("<b>3</b>", "3")),
    ("gradle ignores failures", "build.gradle", GRADLE, ("    useJUnitPlatform()\n", "    useJUnitPlatform()\n    ignoreFailures = true\n")),
    ("gradle exclude", "build.gradle", GRADLE, ("    useJUnitPlatform()\n", "    useJUnitPlatform()\n    exclude '**/MoneyTest*'\n")),
    ("gradle filter", "build.gradle", GRADLE, ("    useJUnitPlatform()\n", "    useJUnitPlatform()\n    filter { excludeTestsMatching 'org.acme.MoneyTest.addsUp' }\n")),
    ("gradle off", "build.gradle", GRADLE, ("    useJUnitPlatform()\n", "    enabled = false\n")),
    ("surefire skips", "pom.xml", POM, ("          <forkCount>1</forkCount>\n", "          <skipTests>true</skipTests>\n")),
    ("surefire excludes", "pom.xml", POM, ("          <forkCount>1</forkCount>\n", "          <excludes>\n            <exclude>**/MoneyTest.java</exclude>\n          </excludes>\n")),
    ("npm script or true", "package.json", PKG, ('"mocha test"', '"mocha test || true"')),
    ("npm script replaced", "package.json", PKG, ('"mocha test"', '"echo ok"')),
    ("npm script grep", "package.json", PKG, ('"mocha test"', '"mocha test --grep joins --invert"')),
    ("jest ignore pattern", "jest.config.js", JCONF, ("  testEnvironment: 'node',\n", "  testEnvironment: 'node',\n  testPathIgnorePatterns: ['/node_modules/', 'slug.test'],\n")),
    ("vitest exclude", "vitest.config.ts", VCONF, ("    globals: true,\n", "    globals: true,\n    exclude: ['tests/price.test.ts'],\n")),
    ("vitest no tests", "vitest.config.ts", VCONF, ("    globals: true,\n", "    globals: true,\n    passWithNoTests: true,\n    include: ['tests/none/**'],\n")),
    ("ci continue", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "      - run: pytest tests\n        continue-on-error: true\n")),
    ("ci or true", ".github/workflows/ci.yml", CI, ("pytest tests", "pytest tests || true")),
    ("ci step gone", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "")),
    ("ci narrower", ".github/workflows/ci.yml", CI, ("pytest tests", "pytest tests/test_easy.py")),
    ("ci deselect", ".github/workflows/ci.yml", CI, ("pytest tests", "pytest tests -k 'not ticks'")),
    ("ci exit code", ".github/workflows/ci.yml", CI, ("run: pytest tests", "run: pytest tests; exit 0")),
    ("ci if false", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "      - run: pytest tests\n        if: false\n")),
    ("cmake test gone", "CMakeLists.txt", CMAKE, ("add_test(NAME mean COMMAND mean_test)\n", "")),
    ("cmake will fail", "CMakeLists.txt", CMAKE, ("COMMAND mean_test)\n", "COMMAND mean_test)\nset_tests_properties(mean PROPERTIES WILL_FAIL TRUE)\n")),
    ("cmake command", "CMakeLists.txt", CMAKE, ("COMMAND mean_test)", "COMMAND ${CMAKE_COMMAND} -E true)")),
    ("make dash", "Makefile", MAKE, ("\tpytest tests", "\t-pytest tests")),
    ("make recipe gone", "Makefile", MAKE, ("\t./run_tests.sh\n\tpytest tests\n", "\t@echo passed\n")),
    ("script no longer stops", "run_tests.sh", RUNSH, ("set -euo pipefail\n", "")),
    ("script or true", "run_tests.sh", RUNSH, ("cargo test --all", "cargo test --all || :")),
    ("script skips", "run_tests.sh", RUNSH, ("cargo test --all", "cargo test --all -- --skip squares")),
    ("bats skip", "tests/calc.bats", BATS, ('@test "adds" {\n', '@test "adds" {\n  skip "later"\n')),
    ("bats value", "tests/calc.bats", BATS, ('"$output" = "2"', '"$output" = "3"')),
    ("bats gone", "tests/calc.bats", BATS, ('  [ "$status" -ne 0 ]\n', "")),
    ("shell or true", "tests/calc_test.sh", SHTEST, ("diff out.txt expected/add.txt", "diff out.txt expected/add.txt || true")),
    ("shell early exit", "tests/calc_test.sh", SHTEST, ("diff out.txt", "exit 0\ndiff out.txt")),
    ("pytest ini deselect", "pytest.ini", INI, ("-q", "-q --deselect tests/test_clock.py::test_ticks")),
    ("pytest ini paths", "pytest.ini", INI, ("testpaths = tests", "testpaths = tests/unit")),
    ("pyproject marker", "pyproject.toml", PYPROJ, ('"-q"', "\"-q -m 'not slow'\"")),
    ("conftest ignore", "conftest.py", CONF, ("import pytest\n", 'import pytest\n\ncollect_ignore = ["tests/test_clock.py"]\n')),
    ("conftest report", "conftest.py", CONF + "\n", ("    return [1, 2]\n", "    return [1, 2]\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    outcome = yield\n    rep = outcome.get_result()\n    if rep.failed:\n        rep.outcome = 'passed'\n")),
    ("conftest exit", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\ndef pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 0\n")),
    ("conftest removes items", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\ndef pytest_collection_modifyitems(config, items):\n    items[:] = [i for i in items if 'ticks' not in i.name]\n")),
    ("conftest autouse", "conftest.py", CONF, ("    return [1, 2]\n", '    return [1, 2]\n\n\n@pytest.fixture(autouse=True)\ndef _fast(monkeypatch):\n    monkeypatch.setattr("acme.clock.parse", lambda text: 60)\n')),
    ("mocha hook", "test/setup.js", "require('chai');\n", ("require('chai');\n", "require('chai');\n\nafterEach(function () {\n  this.currentTest.state = 'passed';\n});\n")),
    ("jest setup exit", "test/setup.js", "require('chai');\n", ("require('chai');\n", "require('chai');\nprocess.on('exit', () => { process.exitCode = 0; });\n")),
    ("cargo test off", "Cargo.toml", CARGO, ("[dependencies]", '[[test]]\nname = "shapes"\ntest = false\n\n[dependencies]')),
]  # fmt: skip

GOOD = [
    ("junit4 to junit5", J, JUNIT4, ('assertEquals("sum", 7, money.plus(2).amount())', 'assertEquals(7, money.plus(2).amount(), "sum")'), ("import org.junit.Test;", "import org.junit.jupiter.api.Test;")),
    ("junit4 assertThrows", J, JUNIT4, ("    @Test(expected = IllegalArgumentException.class)\n", "    @Test\n"), ("        new Money(-1);", "        assertThrows(IllegalArgumentException.class, () -> new Money(-1));")),
    ("junit4 message", J, JUNIT4, ('"sum", 7', '"sum of both", 7')),
    ("junit4 method renamed", J, JUNIT4, ("addsUp()", "addsTwoAmounts()")),
    ("junit4 new case", J, JUNIT4, ("    @Test(timeout", "    @Test\n    public void adds0() {\n        assertEquals(5, money.plus(0).amount());\n    }\n\n    @Test(timeout")),
    ("junit4 limit needed", J, JUNIT4, ("timeout = 100", "timeout = 300")),
    ("junit4 to assertj", J, JUNIT4, ('assertEquals("sum", 7, money.plus(2).amount());', 'assertThat(money.plus(2).amount()).as("sum").isEqualTo(7);')),
    ("junit4 helper", J, JUNIT4, ('        assertEquals("sum", 7, money.plus(2).amount());\n', "        checkSum(7, money.plus(2));\n"), ("    @Test(timeout", "    private void checkSum(int want, Money money) {\n        assertEquals(want, money.amount());\n    }\n\n    @Test(timeout")),
    ("junit4 setup", J, JUNIT4, ("    private Money money = new Money(5);\n", "    private Money money;\n\n    @Before\n    public void setUp() {\n        money = new Money(5);\n    }\n")),
    ("testng more rows", N, TESTNG, ('            {"/a/./b", "/a/b"},\n', '            {"/a/./b", "/a/b"},\n            {"//", "/"},\n')),
    ("testng group", N, TESTNG, ("    @Test\n    public void joins", '    @Test(groups = "fast")\n    public void joins')),
    ("assertj description", N, TESTNG, ('.as("joined")', '.describedAs("a and b")')),
    ("assertj stricter", N, TESTNG, ('.isEqualTo("a/b")', '.isNotNull().isEqualTo("a/b")')),
    ("mocha arrow", M, MOCHA, ("it('lowers', function () {", "it('lowers', () => {")),
    ("mocha esm", M, MOCHA, ("const { expect } = require('chai');\nconst slug = require('../lib/slug');", "import { expect } from 'chai';\nimport slug from '../lib/slug.js';")),
    ("mocha renamed", M, MOCHA, ("it('lowers'", "it('lowers all letters'")),
    ("mocha timeout", M, MOCHA, ("it('lowers', function () {\n", "it('lowers', function () {\n    this.timeout(5000);\n")),
    ("mocha to jest", M, MOCHA, ("expect(slug('Hello')).to.equal('hello')", "expect(slug('Hello')).toBe('hello')")),
    ("mocha await", M, MOCHA, ("const got = slug('a b');", "const got = await slug('a b');")),
    ("mocha nested", M, MOCHA, ("  it('lowers', function () {\n    expect(slug('Hello')).to.equal('hello');\n  });\n", "  context('letters', function () {\n    it('lowers', function () {\n      expect(slug('Hello')).to.equal('hello');\n    });\n  });\n")),
    ("mocha double quotes", M, MOCHA, ("'hello'", '"hello"'), ("'Hello'", '"Hello"')),
    ("vitest row added", V, VITEST, ("  [2.5, '2.50'],\n", "  [2.5, '2.50'],\n  [10, '10.00'],\n")),
    ("vitest objects for rows", V, VITEST, ("  [1, '1.00'],\n  [2.5, '2.50'],\n", "  { n: 1, want: '1.00' },\n  { n: 2.5, want: '2.50' },\n"), ("(n, want) =>", "({ n, want }) =>")),
    ("vitest more digits", V, VITEST, ("0.3, 5)", "0.3, 9)")),
    ("vitest types", V, VITEST, ("(n, want) =>", "(n: number, want: string) =>")),
    ("vitest each from tests", V, VITEST, ("  expect(price(3)).toMatchInlineSnapshot(`\"3.00\"`);\n", ""), ("test('round'", "test('three', () => {\n  expect(price(3)).toBe('3.00');\n});\n\ntest('round'")),
    ("testify assert", G, TESTIFY, ("require.Equal(t, 1, got)", 'require.Equal(t, 1, got, "value of a")')),
    ("go error to testify", G, TESTIFY, ('if got := Len(tt.in); got != tt.want {\n				t.Errorf("Len(%q) = %d, want %d", tt.in, got, tt.want)\n			}', "require.Equal(t, tt.want, Len(tt.in))")),
    ("go parallel", G, TESTIFY, ("\ts := New()\n", "\tt.Parallel()\n\ts := New()\n")),
    ("go row without names", G, TESTIFY, ('{in: "a", want: 1}', '{"a", 1}'), ('{in: "bb", want: 2}', '{"bb", 2}')),
    ("go short", G, TESTIFY, ("\ts := New()\n", '\tif testing.Short() {\n\t\tt.Skip("slow")\n\t}\n\ts := New()\n')),
    ("go fatal", G, TESTIFY, ("t.Errorf(", "t.Fatalf(")),
    ("go helper", G, TESTIFY, ("\tgot, err := s.Get(\"a\")\n\trequire.NoError(t, err)\n\trequire.Equal(t, 1, got)\n}", "\tmustGet(t, s, \"a\", 1)\n}\n\nfunc mustGet(t *testing.T, s *Store, key string, want int) {\n\tt.Helper()\n\tgot, err := s.Get(key)\n\trequire.NoError(t, err)\n\trequire.Equal(t, want, got)\n}")),
    ("rust message", R, RUST, (', "square");', ', "area of {}", 2);')),
    ("rust tighter", R, RUST, ("< 1e-4", "< 1e-9")),
    ("rust more", R, RUST, ("#[test]\nfn shows", "#[test]\nfn none() {\n    assert_eq!(area(&Shape::Square(0.0)), 0.0);\n}\n\n#[test]\nfn shows")),
    ("rust module", R, RUST, ("use shapes::{area, Shape};", "use shapes::geometry::{area, Shape};")),
    ("rust result", R, RUST, ("fn squares() {", "fn squares() -> Result<(), String> {"), ('> 0.5);\n', "> 0.5);\n    Ok(())\n")),
    ("rust in the source grows", "src/lib.rs", RLIB, ("        assert_eq!(double(-3), -6);\n", "        assert_eq!(double(-3), -6);\n        assert_eq!(double(0), 0);\n"), ("x * 2", "x + x")),
    ("catch include", C, CATCH, ("#include <catch2/catch_test_macros.hpp>", "#include <catch2/catch_all.hpp>")),
    ("catch sections to cases", C, CATCH, ('  SECTION("overflow") {\n    REQUIRE_THROWS_AS(ring.at(9), std::out_of_range);\n  }\n}', '}\n\nTEST_CASE("overflow", "[ring]") {\n  Ring<int> ring(3);\n  REQUIRE_THROWS_AS(ring.at(9), std::out_of_range);\n}')),
    ("catch tags", C, CATCH, ('"[math]"', '"[math][fast]"')),
    ("catch epsilon", C, CATCH, ("epsilon(0.01)", "epsilon(0.0001)")),
    ("catch require", C, CATCH, ("CHECK(ring.size() == 1)", "REQUIRE(ring.size() == 1)")),
    ("python helper", P, PY, ("    got = ticks(3)\n    assert got == [0, 1, 2]\n", "    same(ticks(3), [0, 1, 2])\n"), ("def test_ticks", "def same(got, want):\n    assert got == want\n\n\ndef test_ticks")),
    ("python tighter", P, PY, ("< 1e-6", "< 1e-9")),
    ("python ids", P, PY, ('[("1h", 60), ("5m", 5)])', '[pytest.param("1h", 60, id="h"), pytest.param("5m", 5, id="m")])')),
    ("python more rows", P, PY, ('("5m", 5)]', '("5m", 5), ("0m", 0)]')),
    ("python async", P, PY, ("def test_ticks(clock):", "async def test_ticks(clock):")),
    ("python match", P, PY, ("pytest.raises(ValueError)", 'pytest.raises(ValueError, match="x")')),
    ("python class", P, PY, ("def test_ticks(clock):\n    got = ticks(3)\n    assert got == [0, 1, 2]\n    assert abs(ticks.rate - 0.25) < 1e-6\n", "class TestTicks:\n    def test_values(self):\n        got = ticks(3)\n        assert got == [0, 1, 2]\n\n    def test_rate(self):\n        assert abs(ticks.rate - 0.25) < 1e-6\n")),
    ("python platform", P, PY, ("def test_ticks", '@pytest.mark.skipif(sys.version_info < (3, 11), reason="new")\ndef test_ticks')),
    ("doctest more", "acme/sums.py", DOC, (">>> add(2, 2)\n4\n", ">>> add(2, 2)\n4\n>>> add(0, 0)\n0\n")),
    ("insta header", "tests/snapshots/render__a.snap", SNAP, ("expression: render(3)", 'expression: "render(3)"')),
    ("jest new snapshot", "test/__snapshots__/card.test.js.snap", JSNAP, ("exports[`card 1`]", "exports[`a card 1`] = `\n<i />\n`;\n\nexports[`card 1`]")),
    ("jest snapshot renamed", "test/__snapshots__/card.test.js.snap", JSNAP, ("exports[`card 1`]", "exports[`shows a card 1`]")),
    ("gradle dependency", "build.gradle", GRADLE, ("test {", "dependencies {\n    testImplementation('a:b:1') {\n        exclude group: 'junit', module: 'junit'\n    }\n}\n\ntest {")),
    ("gradle logging", "build.gradle", GRADLE, ("    useJUnitPlatform()\n", "    useJUnitPlatform()\n    testLogging { events 'failed' }\n    maxHeapSize = '2g'\n")),
    ("gradle report", "build.gradle", GRADLE, ("test {", "jacocoTestReport {\n    reports {\n        html.enabled = false\n    }\n}\n\ntest {")),
    ("jacoco excludes", "pom.xml", POM, ("    </plugins>\n", "      <plugin>\n        <artifactId>jacoco-maven-plugin</artifactId>\n        <configuration>\n          <excludes>\n            <exclude>**/Generated*.class</exclude>\n          </excludes>\n        </configuration>\n      </plugin>\n    </plugins>\n")),
    ("npm coverage", "package.json", PKG, ('"mocha test"', '"nyc mocha test"')),
    ("npm other script", "package.json", PKG, ('    "build": "tsc",\n', '    "build": "tsc",\n    "test:watch": "mocha --watch test",\n    "lint": "eslint . || true",\n')),
    ("jest coverage", "jest.config.js", JCONF, ("  testEnvironment: 'node',\n", "  testEnvironment: 'node',\n  collectCoverageFrom: ['src/**/*.js', '!src/gen/**'],\n  coveragePathIgnorePatterns: ['/gen/'],\n  testTimeout: 20000,\n")),
    ("vitest coverage", "vitest.config.ts", VCONF, ("    globals: true,\n", "    globals: true,\n    coverage: {\n      provider: 'v8',\n      exclude: ['src/gen/**'],\n    },\n")),
    ("ci coverage", ".github/workflows/ci.yml", CI, ("pytest tests", "pytest tests --cov=acme --cov-report=xml")),
    ("ci matrix", ".github/workflows/ci.yml", CI, ("    runs-on: ubuntu-latest\n", "    runs-on: ubuntu-latest\n    strategy:\n      fail-fast: false\n      matrix:\n        python: ['3.11', '3.12']\n")),
    ("ci split", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "      - run: pytest tests/unit\n      - run: pytest tests/integration\n")),
    ("ci upload may fail", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "      - run: pytest tests\n      - uses: codecov/codecov-action@v4\n        continue-on-error: true\n")),
    ("ci cleanup", ".github/workflows/ci.yml", CI, ("      - run: pytest tests\n", "      - run: docker rm -f db || true\n      - run: pytest tests\n")),
    ("cmake renamed", "CMakeLists.txt", CMAKE, ("add_test(NAME mean COMMAND mean_test)", "add_test(NAME mean_of_two COMMAND mean_test)")),
    ("cmake added", "CMakeLists.txt", CMAKE, ("add_test(NAME ring", "add_test(NAME zero COMMAND zero_test)\nadd_test(NAME ring")),
    ("make more", "Makefile", MAKE, ("\tpytest tests\n", "\tpytest -x tests\n\nclean:\n\t-rm -rf build\n")),
    ("script stricter", "run_tests.sh", RUNSH, ("set -euo pipefail\n", "set -Eeuo pipefail\nexport RUST_BACKTRACE=1\n")),
    ("script cleanup", "run_tests.sh", RUNSH, ("cargo test --all", "rm -rf /tmp/x || true\ncargo test --all --locked")),
    ("bats more", "tests/calc.bats", BATS, ('@test "fails', '@test "minus" {\n  run ./calc 2 - 1\n  [ "$output" = "1" ]\n}\n\n@test "fails')),
    ("bats renamed", "tests/calc.bats", BATS, ('@test "adds"', '@test "adds two numbers"')),
    ("shell formatted", "tests/calc_test.sh", SHTEST, ("grep -q 2 out.txt", "grep  -q  2  out.txt")),
    ("pytest ini markers", "pytest.ini", INI, ("testpaths = tests\n", "testpaths = tests\nmarkers =\n    slow: takes long\nasyncio_mode = auto\n")),
    ("pytest ini strict", "pytest.ini", INI, ("-q", "-q --strict-markers --cov=acme -p no:cacheprovider")),
    ("pyproject coverage", "pyproject.toml", PYPROJ, ("branch = true\n", 'branch = true\nomit = ["tests/*"]\n')),
    ("pyproject lint", "pyproject.toml", PYPROJ, ("[tool.coverage.run]", '[tool.ruff]\nexclude = ["tests/data"]\n\n[tool.coverage.run]')),
    ("conftest fixture", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\n@pytest.fixture(autouse=True)\ndef _home(tmp_path, monkeypatch):\n    monkeypatch.setenv('HOME', str(tmp_path))\n")),
    ("conftest report kept", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    outcome = yield\n    rep = outcome.get_result()\n    setattr(item, 'rep_' + rep.when, rep)\n")),
    ("conftest order", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\ndef pytest_collection_modifyitems(config, items):\n    items.sort(key=lambda item: 'slow' in item.keywords)\n")),
    ("conftest browsers", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\ndef pytest_generate_tests(metafunc):\n    if 'browser' in metafunc.fixturenames:\n        metafunc.parametrize('browser', ['a', 'b'])\n")),
    ("conftest option", "conftest.py", CONF, ("    return [1, 2]\n", "    return [1, 2]\n\n\ndef pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')\n\n\ndef pytest_collection_modifyitems(config, items):\n    if config.getoption('--slow'):\n        return\n    for item in items:\n        if 'slow' in item.keywords:\n            item.add_marker(pytest.mark.skip(reason='slow'))\n")),
    ("go main set up", G.replace("store_", "main_"), MAIN, ("\tos.Exit(m.Run())", "\tsetup()\n\tcode := m.Run()\n\tteardown()\n\tos.Exit(code)")),
    ("jest setup", "test/setup.js", "require('chai');\n", ("require('chai');\n", "require('chai').use(require('chai-as-promised'));\nbeforeEach(() => { jest.useFakeTimers(); });\n")),
    ("cargo dev dependency", "Cargo.toml", CARGO, ("[dependencies]", '[dev-dependencies]\ninsta = "1"\n\n[dependencies]')),
]  # fmt: skip

/* highlight.js: colours for code, by a small lexer that knows comments, strings, numbers and keywords of a few dozen languages.
 * It colours and understands nothing: a language it does not know is shown plain. */

const words = (text) => new Set(text.split(" "));

const C_WORDS = "auto bool break case catch char class const constexpr continue default delete do double else enum explicit extern false " +
    "final float for friend goto if inline int long namespace new noexcept nullptr operator override private protected public register " +
    "return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void " +
    "volatile while NULL size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t";
const JS_WORDS = "abstract any as async await boolean break case catch class const continue debugger default delete do else enum export extends " +
    "false finally for from function get if implements import in instanceof interface let new null number of package private protected " +
    "public return set static string super switch this throw true try type typeof undefined var void while with yield";
const JVM_WORDS = JS_WORDS + " byte char double final float fun int long native object override short synchronized throws val when var record sealed using " +
    "namespace foreach bool decimal virtual internal readonly";
const GO_WORDS = "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return " +
    "select struct switch type var nil true false iota string int int8 int16 int32 int64 uint uint8 uint32 uint64 byte rune bool error float32 float64";
const RUST_WORDS = "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref " +
    "return self Self static struct super trait true type unsafe use where while i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 bool str String " +
    "Option Some None Result Ok Err Vec Box";
const PYTHON_WORDS = "and as assert async await break case class continue def del elif else except False finally for from global if import in is " +
    "lambda match None nonlocal not or pass raise return self True try while with yield";
const SHELL_WORDS = "if then else elif fi for while until do done case esac in function return local export set unset shift exit echo printf cd read " +
    "source trap sudo true false";
const RUBY_WORDS = "alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or raise redo require rescue " +
    "retry return self super then true undef unless until when while yield my our sub use package local function repeat";
const SQL_WORDS = "select from where and or not in is null insert into values update set delete create table index view drop alter add primary key " +
    "foreign references join left right inner outer full on group by order having limit offset union all distinct as case when then else end " +
    "exists between like asc desc begin commit rollback with recursive returning default check unique int integer text varchar boolean";

const STRINGS = /"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?/y;
const STRINGS_AND_TICKS = /"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?|`(?:[^`\\]|\\[^])*`?/y;
const STRINGS_OF_PYTHON = /[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?)/y;
/* 'a lifetime is no string */
const STRINGS_OF_RUST = /"(?:[^"\\]|\\[^])*"?|'(?:[^'\\\n]|\\.[^'\n]{0,8})'/y;
const C_COMMENT = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/y;
const HASH_COMMENT = /#[^\n]*/y;
const DASH_COMMENT = /--[^\n]*|\/\*[^]*?(?:\*\/|$)/y;

const FAMILIES = [
    {names: "c h cpp c++ cc cxx hpp cuda cu objc glsl arduino", words: C_WORDS, comment: C_COMMENT, string: STRINGS, directive: /#[ \t]*[a-z]+/y},
    {names: "js javascript jsx ts typescript tsx mjs", words: JS_WORDS, comment: C_COMMENT, string: STRINGS_AND_TICKS},
    {names: "java kotlin kt scala cs csharp c# swift dart groovy php", words: JVM_WORDS, comment: C_COMMENT, string: STRINGS},
    {names: "go golang", words: GO_WORDS, comment: C_COMMENT, string: STRINGS_AND_TICKS},
    {names: "rust rs zig", words: RUST_WORDS, comment: C_COMMENT, string: STRINGS_OF_RUST},
    {names: "python py python3 pyi starlark", words: PYTHON_WORDS, comment: HASH_COMMENT, string: STRINGS_OF_PYTHON, directive: /@[\w.]+/y},
    {names: "sh bash zsh shell console fish dockerfile make makefile cmake", words: SHELL_WORDS, comment: HASH_COMMENT, string: STRINGS,
     directive: /\$\{?[\w@#?*]+\}?/y},
    {names: "ruby rb perl pl elixir r julia nix", words: RUBY_WORDS, comment: HASH_COMMENT, string: STRINGS},
    {names: "yaml yml toml ini conf properties", words: "true false null yes no on off", comment: /[#;][^\n]*/y, string: STRINGS,
     directive: /[\w.-]{1,80}(?=[ \t]{0,8}[:=])|^\[[^\]\n]*\]/my},
    {names: "sql sqlite postgres mysql plsql", words: SQL_WORDS, comment: DASH_COMMENT, string: STRINGS, anyCase: true},
    {names: "lua haskell hs elm ada vhdl", words: RUBY_WORDS + " let where data instance deriving of import", comment: DASH_COMMENT, string: STRINGS},
    {names: "json jsonc json5 jsonl", words: "true false null", comment: C_COMMENT, string: STRINGS, directive: /"(?:[^"\\\n]|\\.)*"(?=\s*:)/y},
    {names: "css scss less", words: "important inherit initial unset none auto", comment: /\/\*[^]*?(?:\*\/|$)/y, string: STRINGS,
     directive: /@[\w-]{1,80}|[\w-]{1,80}(?=\s{0,8}:[^{};\n]{0,200}[;}\n])|[.#][\w-]{1,80}(?=[^;{}]{0,200}\{)/y},
    {names: "html xml svg xhtml vue svelte markdown md", words: "", comment: /<!-{2}[^]*?(?:-->|$)/y, string: /"[^"\n]*"|'[^'\n]*'/y,
     directive: /<\/?[A-Za-z][\w:.-]*|\/?>/y},
    {names: "diff patch", words: "", comment: /^(?:@@|diff|index|---|\+\+\+)[^\n]*/my, string: /^\+[^\n]*/my, directive: /^-[^\n]*/my},
];

const LANGUAGES = new Map();
for (const family of FAMILIES) {
    family.set = words(family.words);
    for (const name of family.names.split(" ")) LANGUAGES.set(name, family);
}

const NUMBER = /(?:0[xX][\da-fA-F_']+|0[bB][01_]+|\d[\d_']*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/y;
const WORD = /[\p{L}_$][\p{L}\p{N}_$]*/uy;
const HIGHLIGHT_MAX = 60000;

/* Code as a fragment of text and coloured spans. */
function highlight(text, language) {
    const into = document.createDocumentFragment(), family = LANGUAGES.get(language);
    if (!family || text.length > HIGHLIGHT_MAX) {
        into.append(text);
        return into;
    }
    const kinds = [["comment", family.comment], ["directive", family.directive], ["string", family.string], ["number", NUMBER], ["word", WORD]];
    let plain = 0, at = 0;
    while (at < text.length) {
        const [kind, found] = match(kinds, text, at);
        const name = kind === "word" ? wordKind(family, text, at, found) : kind;
        if (name) {
            if (at > plain) into.append(text.slice(plain, at));
            into.append(el("span", {class: "t-" + name}, found));
            plain = at + found.length;
        }
        at += found.length;
    }
    into.append(text.slice(plain));
    return into;
}

function match(kinds, text, at) {
    for (const [kind, pattern] of kinds) {
        if (!pattern) continue;
        pattern.lastIndex = at;
        const found = pattern.exec(text);
        if (found && found[0]) return [kind, found[0]];
    }
    return [null, text[at]];
}

function wordKind(family, text, at, word) {
    if (family.set.has(family.anyCase ? word.toLowerCase() : word)) return "keyword";
    return text[at + word.length] === "(" ? "call" : null;
}

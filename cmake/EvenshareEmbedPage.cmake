# The chat page: src/serve/page/ put together into one HTML file, as an array in C, with the policy that lets exactly this
# style and this script run (their SHA-256 in base64, as browsers want it). Run by the build: cmake -D SOURCE=.. -D OUT=.. -P
cmake_minimum_required(VERSION 3.25)
set(scripts dom markdown highlight api meters store messages answer settings status welcome app)

# Three hexadecimal digits are two of base64.
function(sha256_base64 out text)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")
  set(result "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${hex} ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${digits} ${high} 1 a)
    string(SUBSTRING ${digits} ${low} 1 b)
    string(APPEND result ${a}${b})
  endforeach()
  string(SUBSTRING ${result} 0 43 result)
  set(${out} "${result}=" PARENT_SCOPE)
endfunction()

file(READ ${SOURCE}/index.html page)
file(READ ${SOURCE}/page.css style)
set(script "")
foreach(name ${scripts})
  file(READ ${SOURCE}/${name}.js text)
  string(APPEND script "${text}")
endforeach()
if("${script}${style}" MATCHES "</s|<!--")
  message(FATAL_ERROR "the page's scripts and style must not hold \"</s\" or \"<!--\": they would end inside HTML")
endif()

sha256_base64(script_hash "${script}")
sha256_base64(style_hash "${style}")
string(REPLACE "@style@" "${style}" page "${page}")
string(REPLACE "@script@" "${script}" page "${page}")
file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "/* Made by cmake/EvenshareEmbedPage.cmake from src/serve/page/. */
#include \"serve/page.h\"

const char es_page_policy[] = \"default-src 'none'; script-src 'sha256-${script_hash}'; style-src 'sha256-${style_hash}'; \"
                              \"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \"
                              \"require-trusted-types-for 'script'; trusted-types 'none'\";
const unsigned char es_page_html[] = {
${bytes}
};
const size_t es_page_bytes = sizeof es_page_html;
")

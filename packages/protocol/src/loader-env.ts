// Variables by which a program is made to load other code than its own, or another program in its place. A node that
// allows no custom command must refuse them: one such variable of a trusted package runs anything.

const LOADERS: readonly RegExp[] = [
  // Node and what installs for it. NODE_ENV, NODE_DEBUG and an application's own NODE_… load nothing.
  /^NODE_(OPTIONS|PATH|COMPILE_CACHE|REPL_.*|CHANNEL_.*|PRESERVE_SYMLINKS.*|V8_COVERAGE|REDIRECT_WARNINGS|ICU_DATA|EXTRA_CA_CERTS|GYP_.*)$/,
  /^(NPM_(CONFIG_.*|EXECPATH|NODE_EXECPATH)|YARN_.*|PNPM_.*|COREPACK_.*|BUN_OPTIONS|BUN_INSPECT.*|DENO_.*)$/,
  // The dynamic linker, the C library and OpenSSL.
  /^(LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|GLIBC_TUNABLES|OPENSSL_.*)$/,
  // Which program a name means, and what a shell runs first.
  /^(PATH|PATHEXT|COMSPEC|SHELL|BASH_.*|ENV|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|IFS|CDPATH|ZDOTDIR|FPATH)$/,
  /^(PYTHON.*|RUBYOPT|RUBYLIB|GEM_HOME|GEM_PATH|BUNDLE_GEMFILE|PERL5.*|PERLLIB|PHPRC|PHP_INI_SCAN_DIR|LUA_.*|ERL_.*)$/,
  /^(JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|DOTNET_STARTUP_HOOKS|DOTNET_ADDITIONAL_DEPS|DOTNET_SHARED_STORE|CORECLR_.*|COR_PROFILER.*|COR_ENABLE_PROFILING)$/,
  // Commands that git and ssh run. Variables that describe the commit of a build are harmless.
  /^(GIT_(?!(SHA|COMMIT|COMMIT_SHA|BRANCH|TAG|REF|REVISION)$).*|SSH_ASKPASS.*)$/,
];

const found = new WeakMap<Readonly<Record<string, unknown>>, readonly string[]>();

/** The names in `env` that change which code is loaded. Case does not matter: npm reads its own in any. */
export function loaderVariables(env: Readonly<Record<string, unknown>>): readonly string[] {
  const known = found.get(env);
  if (known) return known;
  const names = Object.keys(env).filter((name) =>
    LOADERS.some((loader) => loader.test(name.toUpperCase())),
  );
  found.set(env, names);
  return names;
}

import { expect, test } from "vitest";
import { loaderVariables } from "./loader-env.ts";

const named = (names: string[]) => loaderVariables(Object.fromEntries(names.map((n) => [n, "1"])));

test.each([
  ...["NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "node_options", "OPENSSL_CONF"],
  ...["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "GCONV_PATH"],
  ...["PATH", "BASH_ENV", "ENV", "BASH_FUNC_ls", "PS4", "SHELLOPTS", "SHELL"],
  ...["PYTHONPATH", "PYTHONSTARTUP", "RUBYOPT", "PERL5OPT", "PERL5LIB", "JAVA_TOOL_OPTIONS"],
  ...["GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "SSH_ASKPASS"],
  ...["npm_config_registry", "NPM_CONFIG_SCRIPT_SHELL", "npm_config_node_options", "npm_execpath"],
  ...["DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER", "LUA_INIT", "PHPRC", "CLASSPATH"],
])("%s changes which code is loaded", (name) => {
  expect(named([name])).toEqual([name]);
});

test("ordinary variables do not", () => {
  const ordinary = [
    ...["PORT", "NODE_ENV", "NODE_DEBUG", "NODE_CONFIG", "NODE_NO_WARNINGS", "HOME", "LANG", "TZ"],
    ...[
      "DATABASE_URL",
      "STRIPE_KEY",
      "GIT_SHA",
      "GIT_COMMIT",
      "APP_PATH",
      "ENVIRONMENT",
      "HTTPS_PROXY",
    ],
    ...["UV_THREADPOOL_SIZE", "DEBUG", "LOG_LEVEL", "NPM_TOKEN", "BUILD_ID", "OLD_PATH"],
  ];
  expect(named(ordinary)).toEqual([]);
});

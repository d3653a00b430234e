import { delimiter, dirname } from "node:path";

export interface ChildIdentity {
  deploymentId: string;
  generation: number;
  tenureUrl: string;
  tenureCaFile?: string | undefined;
  token: string | undefined;
  /** The child's own directory. */
  workDirectory: string;
}

const WORK_DIRECTORY = "TENURE_WORK_DIR";

/**
 * Builds the environment of a child. It has nothing of the agent's environment, which contains tokens and passwords.
 *
 * `PATH` begins with the Node that runs the agent, because most children are scripts for it; `HOME` is the child's own
 * directory, so that two deployments do not share dot files. A deployment may set both, `LANG` and `TENURE_TOKEN`. It cannot set other names that
 * begin with `TENURE_`: the fencing token must be that of the child's generation.
 */
export function childEnvironment(
  { deploymentId, generation, tenureUrl, tenureCaFile, token, workDirectory }: ChildIdentity,
  { env, pathFirst = [] }: { env: Readonly<Record<string, string>>; pathFirst?: readonly string[] },
): Record<string, string> {
  return {
    PATH: [...pathFirst, dirname(process.execPath), ...SYSTEM_PATH].join(delimiter),
    HOME: workDirectory,
    LANG: "C.UTF-8",
    // A token that the deployment sets itself comes first: it was put there before children had one.
    ...(token !== undefined && { TENURE_TOKEN: token }),
    ...env,
    TENURE_DEPLOYMENT_ID: deploymentId,
    TENURE_FENCING_TOKEN: String(generation),
    TENURE_URL: tenureUrl,
    ...(tenureCaFile !== undefined && { TENURE_CA_FILE: tenureCaFile }),
    [WORK_DIRECTORY]: workDirectory,
  };
}

/** The text in the environment of every process below `workDirectory`, also of one that left its process group. */
export const orphanMark = (workDirectory: string): string => `${WORK_DIRECTORY}=${workDirectory}/`;

const SYSTEM_PATH = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/**
 * Builds the environment of npm from the agent's: the user's registry, proxy and certificates are set there, and an `.npmrc`
 * may name any variable. Left out are the agent's own settings, and those by which an npm that started the agent would
 * change where and how to install. npm runs no code of a package here.
 */
export function npmEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const passed = Object.entries(env).filter(
    ([name]) => !AGENT_SETTING.test(name) && !NPM_PLACE.test(name),
  );
  return Object.fromEntries(passed);
}

const AGENT_SETTING =
  /^(HOST_(URL|TOKEN(_FILE)?|(CA|CERT|KEY)_FILE)|NODE_UNIT_.*|TENURE_.*|TRUSTED_PACKAGE_REGEXP|ENABLE_CUSTOM_COMMAND|NODE_OPTIONS)$/i;
const NPM_PLACE =
  /^npm_config_(workspaces?|include_workspace_root|global|location|(local_|global_)?prefix|dry_run|package_lock_only|include|omit|only|dev|production|force|save.*)$/i;

const OWNER_ONLY = 0o077;

/**
 * Makes every file that this process writes from now on readable by its own user only. For programs that keep secrets,
 * called once at their start. Returns the former umask, which their children get back.
 */
export const keepFilesPrivate = (): number => process.umask(OWNER_ONLY);

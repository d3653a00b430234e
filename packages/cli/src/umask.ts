const OWNER_ONLY = 0o077;

/**
 * Makes every new file of this process readable by its own user only. Programs that keep secrets call it once at start.
 * Returns the previous umask, which their children get back.
 */
export const keepFilesPrivate = (): number => process.umask(OWNER_ONLY);

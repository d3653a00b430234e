/**
 * A named place where a test may stop, delay or kill the process. What is here is what is shipped: nothing.
 * The armed form stands in `testing/`, is reached only under the export condition `tenure-test`, and is not
 * part of the package.
 */
export async function failpoint(_name: string): Promise<void> {}

/**
 * Whether a test can make something happen here. The path of every job checks it before it awaits a failpoint: an await
 * that waits for nothing costs 250 bytes, and there are a dozen of them.
 */
export const hasFailpoints: boolean = false;

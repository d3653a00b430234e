/**
 * A named place where a test may stop, delay or kill the process. What is here is what is shipped: nothing.
 * The armed form stands in `testing/`, is reached only under the export condition `tenure-test`, and is not
 * part of the package.
 */
export async function failpoint(_name: string): Promise<void> {}

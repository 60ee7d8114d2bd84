/** The descriptors are unreadable or incomplete; the message names the file. */
export class DescriptorFault extends Error {
  override readonly name = 'DescriptorFault';
}

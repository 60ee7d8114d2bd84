/** The node's reply does not fit its descriptors: malformed wire, or an Any of unknown type. */
export class WireFault extends Error {
  override readonly name = 'WireFault';
}

/** The same as Groups, by the protocol of KIP-848. */
final class NewGroups {
    private NewGroups() {}

    static void run(String bootstrap, String prefix) throws Exception {
        Groups.all(bootstrap, prefix, "consumer");
    }
}

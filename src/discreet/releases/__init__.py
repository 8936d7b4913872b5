"""What leaves a privatizer: public, and all that learners see."""
